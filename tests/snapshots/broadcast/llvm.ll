; ModuleID = 'weft'
source_filename = "weft"
target datalayout = "e-p6:32:32-i64:64-i128:128-i256:256-v16:16-v32:32-n16:32:64"
target triple = "nvptx64-nvidia-cuda"

define ptx_kernel void @broadcast(ptr addrspace(1) align 16 %0, ptr addrspace(1) align 8 %1, i64 %2, i32 %3, i32 %4, i64 %5, i64 %6) #0 !dbg !3 {
entry:
  %7 = inttoptr i64 %5 to ptr addrspace(1), !dbg !6
  %8 = inttoptr i64 %6 to ptr addrspace(1), !dbg !6
  %9 = inttoptr i64 %2 to ptr addrspace(1), !dbg !7
  %10 = call range(i32 0, 65535) i32 @llvm.nvvm.read.ptx.sreg.ctaid.z(), !dbg !7
  %11 = call range(i32 1, 65536) i32 @llvm.nvvm.read.ptx.sreg.nctaid.y(), !dbg !7
  %12 = call range(i32 0, 65535) i32 @llvm.nvvm.read.ptx.sreg.ctaid.y(), !dbg !7
  %13 = call range(i32 1, -2147483648) i32 @llvm.nvvm.read.ptx.sreg.nctaid.x(), !dbg !7
  %14 = call range(i32 0, 2147483647) i32 @llvm.nvvm.read.ptx.sreg.ctaid.x(), !dbg !7
  %15 = call range(i32 0, 256) i32 @llvm.nvvm.read.ptx.sreg.tid.x(), !dbg !7
  call void @llvm.nvvm.barrier.cta.sync.aligned.all(i32 0), !dbg !7
  %16 = icmp eq i32 %15, 0, !dbg !7
  br i1 %16, label %then, label %end, !dbg !7

then:                                             ; preds = %entry
  %narrow = mul nuw i32 %10, %11, !dbg !7
  %17 = zext i32 %narrow to i64, !dbg !7
  %18 = zext nneg i32 %13 to i64, !dbg !7
  %19 = zext nneg i32 %12 to i64, !dbg !7
  %20 = add nuw nsw i64 %17, %19, !dbg !7
  %21 = mul nuw i64 %20, %18, !dbg !7
  %22 = zext nneg i32 %14 to i64, !dbg !7
  %23 = add i64 %21, %22, !dbg !7
  %24 = shl i64 %23, 7, !dbg !7
  %25 = getelementptr i8, ptr addrspace(1) %9, i64 %24, !dbg !7
  %26 = ptrtoint ptr addrspace(1) %25 to i64, !dbg !7
  call void asm sideeffect "multimem.red.release.sys.global.add.u32 [$0], $1;", "l,r,~{memory}"(i64 %26, i32 1) #4, !dbg !7
  %27 = getelementptr i8, ptr addrspace(1) %1, i64 %24, !dbg !7
  %28 = getelementptr i8, ptr addrspace(1) %27, i64 4, !dbg !7
  %29 = load i32, ptr addrspace(1) %28, align 4, !dbg !7
  %30 = add i32 %29, 1, !dbg !7
  %31 = mul i32 %30, %3, !dbg !7
  br label %while, !dbg !7

end:                                              ; preds = %done, %entry
  call void @llvm.nvvm.barrier.cta.sync.aligned.all(i32 0), !dbg !7
  %32 = icmp eq i32 %4, 0, !dbg !8
  br i1 %32, label %for, label %end2, !dbg !8

while:                                            ; preds = %while, %then
  %33 = load atomic i32, ptr addrspace(1) %27 acquire, align 4, !dbg !7
  %34 = sub i32 %33, %31, !dbg !7
  %35 = icmp slt i32 %34, 0, !dbg !7
  br i1 %35, label %while, label %done, !dbg !7, !llvm.loop !9

done:                                             ; preds = %while
  store i32 %30, ptr addrspace(1) %28, align 4, !dbg !7
  br label %end, !dbg !7

end2:                                             ; preds = %then8, %done12, %done16, %end
  call void @llvm.nvvm.barrier.cta.sync.aligned.all(i32 0), !dbg !11
  br i1 %16, label %then17, label %end18, !dbg !11

for:                                              ; preds = %end
  %36 = shl nuw nsw i32 %15, 3, !dbg !6
  %37 = zext nneg i32 %36 to i64, !dbg !6
  %38 = zext nneg i32 %14 to i64, !dbg !6
  %39 = shl nuw nsw i64 %38, 11, !dbg !6
  %40 = or disjoint i64 %39, %37, !dbg !6
  %41 = shl nuw nsw i64 %40, 1, !dbg !6
  %42 = getelementptr i8, ptr addrspace(1) %0, i64 %41, !dbg !6
  %43 = or disjoint i64 %40, 7, !dbg !6
  %44 = icmp samesign ult i64 %43, 1003, !dbg !6
  br i1 %44, label %then4, label %else, !dbg !6

then4:                                            ; preds = %for
  %45 = load <8 x half>, ptr addrspace(1) %42, align 16, !dbg !6
  br label %end5, !dbg !6

end5:                                             ; preds = %for6, %else, %then4
  %.033 = phi <8 x half> [ %45, %then4 ], [ zeroinitializer, %else ], [ %59, %for6 ], !dbg !6
  %46 = getelementptr i8, ptr addrspace(1) %7, i64 %41, !dbg !6
  br i1 %44, label %then8, label %else10, !dbg !6

else:                                             ; preds = %for
  %47 = sub nsw i64 1003, %40, !dbg !6
  %48 = call i64 @llvm.smax.i64(i64 %47, i64 0), !dbg !6
  %49 = call i64 @llvm.smin.i64(i64 %48, i64 8), !dbg !6
  %50 = trunc nuw nsw i64 %49 to i32, !dbg !6
  %51 = add nsw i32 %50, -1, !dbg !6
  %.not = icmp eq i64 %48, 0, !dbg !6
  br i1 %.not, label %end5, label %for6, !dbg !6

for6:                                             ; preds = %else, %for6
  %.031 = phi <8 x half> [ %59, %for6 ], [ zeroinitializer, %else ], !dbg !6
  %.030 = phi ptr addrspace(1) [ %60, %for6 ], [ %42, %else ], !dbg !6
  %52 = phi i32 [ %62, %for6 ], [ 0, %else ], !dbg !6
  %53 = load half, ptr addrspace(1) %.030, align 2, !dbg !6
  %54 = insertelement <8 x half> poison, half %53, i64 0, !dbg !6
  %55 = shufflevector <8 x half> %54, <8 x half> poison, <8 x i32> zeroinitializer, !dbg !6
  %56 = insertelement <8 x i32> poison, i32 %52, i64 0, !dbg !6
  %57 = shufflevector <8 x i32> %56, <8 x i32> poison, <8 x i32> zeroinitializer, !dbg !6
  %58 = icmp eq <8 x i32> %57, <i32 0, i32 1, i32 2, i32 3, i32 4, i32 5, i32 6, i32 7>, !dbg !6
  %59 = select <8 x i1> %58, <8 x half> %55, <8 x half> %.031, !dbg !6
  %60 = getelementptr i8, ptr addrspace(1) %.030, i64 2, !dbg !6
  %61 = icmp slt i32 %52, %51, !dbg !6
  %62 = add nuw nsw i32 %52, 1, !dbg !6
  br i1 %61, label %for6, label %end5, !dbg !6, !llvm.loop !12

then8:                                            ; preds = %end5
  %63 = bitcast <8 x half> %.033 to <4 x i32>, !dbg !6
  %64 = extractelement <4 x i32> %63, i64 0, !dbg !6
  %65 = extractelement <4 x i32> %63, i64 1, !dbg !6
  %66 = extractelement <4 x i32> %63, i64 2, !dbg !6
  %67 = extractelement <4 x i32> %63, i64 3, !dbg !6
  %68 = ptrtoint ptr addrspace(1) %46 to i64, !dbg !6
  call void asm sideeffect "multimem.st.relaxed.sys.global.v4.f16x2 [$0], {$1, $2, $3, $4};", "l,r,r,r,r,~{memory}"(i64 %68, i32 %64, i32 %65, i32 %66, i32 %67) #4, !dbg !6
  br label %end2, !dbg !6

else10:                                           ; preds = %end5
  %69 = sub nsw i64 1003, %40, !dbg !6
  %70 = call i64 @llvm.smax.i64(i64 %69, i64 0), !dbg !6
  %71 = call i64 @llvm.smin.i64(i64 %70, i64 8), !dbg !6
  %72 = lshr i64 %71, 1, !dbg !6
  %73 = trunc nuw nsw i64 %72 to i32, !dbg !6
  %74 = add nsw i32 %73, -1, !dbg !6
  %.not34 = icmp eq i64 %72, 0, !dbg !6
  br i1 %.not34, label %done12, label %for11.preheader, !dbg !6

for11.preheader:                                  ; preds = %else10
  %75 = shufflevector <8 x half> %.033, <8 x half> poison, <2 x i32> <i32 0, i32 1>
  %76 = shufflevector <8 x half> %.033, <8 x half> poison, <2 x i32> <i32 2, i32 3>
  %77 = shufflevector <8 x half> %.033, <8 x half> poison, <2 x i32> <i32 4, i32 5>
  %78 = shufflevector <8 x half> %.033, <8 x half> poison, <2 x i32> <i32 6, i32 7>
  br label %for11, !dbg !6

for11:                                            ; preds = %for11.preheader, %for11
  %.029 = phi ptr addrspace(1) [ %88, %for11 ], [ %46, %for11.preheader ], !dbg !6
  %79 = phi i32 [ %90, %for11 ], [ 0, %for11.preheader ], !dbg !6
  %80 = icmp eq i32 %79, 1, !dbg !6
  %81 = select i1 %80, <2 x half> %76, <2 x half> %75, !dbg !6
  %82 = icmp eq i32 %79, 2, !dbg !6
  %83 = select i1 %82, <2 x half> %77, <2 x half> %81, !dbg !6
  %84 = icmp eq i32 %79, 3, !dbg !6
  %85 = select i1 %84, <2 x half> %78, <2 x half> %83, !dbg !6
  %86 = bitcast <2 x half> %85 to i32, !dbg !6
  %87 = ptrtoint ptr addrspace(1) %.029 to i64, !dbg !6
  call void asm sideeffect "multimem.st.relaxed.sys.global.f16x2 [$0], $1;", "l,r,~{memory}"(i64 %87, i32 %86) #4, !dbg !6
  %88 = getelementptr i8, ptr addrspace(1) %.029, i64 4, !dbg !6
  %89 = icmp slt i32 %79, %74, !dbg !6
  %90 = add nuw nsw i32 %79, 1, !dbg !6
  br i1 %89, label %for11, label %done12, !dbg !6, !llvm.loop !13

done12:                                           ; preds = %for11, %else10
  %91 = and i64 %71, 14, !dbg !6
  %92 = trunc nuw nsw i64 %71 to i32, !dbg !6
  %93 = add nsw i32 %92, -1, !dbg !6
  %.not35 = icmp eq i64 %91, %71, !dbg !6
  br i1 %.not35, label %end2, label %for13.preheader, !dbg !6

for13.preheader:                                  ; preds = %done12
  %94 = trunc nuw nsw i64 %91 to i32, !dbg !6
  %95 = extractelement <8 x half> %.033, i64 0
  %96 = extractelement <8 x half> %.033, i64 1
  %97 = extractelement <8 x half> %.033, i64 2
  %98 = extractelement <8 x half> %.033, i64 3
  %99 = extractelement <8 x half> %.033, i64 4
  %100 = extractelement <8 x half> %.033, i64 5
  %101 = extractelement <8 x half> %.033, i64 6
  %102 = extractelement <8 x half> %.033, i64 7
  %103 = sext i32 %3 to i64
  %104 = add nsw i64 %103, -1
  %105 = icmp sgt i32 %3, 0
  br label %for13, !dbg !6

for13:                                            ; preds = %for13.preheader, %done16
  %106 = phi i32 [ %138, %done16 ], [ %94, %for13.preheader ], !dbg !6
  br i1 %105, label %part.preheader, label %done16, !dbg !6

part.preheader:                                   ; preds = %for13
  %107 = icmp eq i32 %106, 7, !dbg !6
  %108 = icmp eq i32 %106, 6, !dbg !6
  %109 = icmp eq i32 %106, 5, !dbg !6
  %110 = icmp eq i32 %106, 4, !dbg !6
  %111 = icmp eq i32 %106, 3, !dbg !6
  %112 = icmp eq i32 %106, 2, !dbg !6
  %113 = icmp eq i32 %106, 1, !dbg !6
  %114 = select i1 %113, half %96, half %95, !dbg !6
  %115 = select i1 %112, half %97, half %114, !dbg !6
  %116 = select i1 %111, half %98, half %115, !dbg !6
  %117 = select i1 %110, half %99, half %116, !dbg !6
  %118 = select i1 %109, half %100, half %117, !dbg !6
  %119 = select i1 %108, half %101, half %118, !dbg !6
  %120 = select i1 %107, half %102, half %119, !dbg !6
  %121 = shl nuw i32 %106, 1
  %122 = zext i32 %121 to i64
  %123 = bitcast half %120 to i16
  br label %part, !dbg !6

part:                                             ; preds = %part.preheader, %next
  %.0 = phi ptr addrspace(1) [ %132, %next ], [ %8, %part.preheader ], !dbg !6
  %124 = phi i64 [ %135, %next ], [ %104, %part.preheader ], !dbg !6
  %125 = call i64 @llvm.umin.i64(i64 %124, i64 1073741824), !dbg !6
  %126 = trunc nuw nsw i64 %125 to i32, !dbg !6
  br label %for15, !dbg !6

for15:                                            ; preds = %for15, %part
  %.1 = phi ptr addrspace(1) [ %.0, %part ], [ %132, %for15 ], !dbg !6
  %127 = phi i32 [ 0, %part ], [ %134, %for15 ], !dbg !6
  %128 = load i64, ptr addrspace(1) %.1, align 8, !dbg !6
  %129 = inttoptr i64 %128 to ptr addrspace(1), !dbg !6
  %130 = getelementptr i8, ptr addrspace(1) %129, i64 %41, !dbg !6
  %131 = getelementptr i8, ptr addrspace(1) %130, i64 %122, !dbg !6
  store atomic i16 %123, ptr addrspace(1) %131 monotonic, align 2, !dbg !6
  %132 = getelementptr i8, ptr addrspace(1) %.1, i64 8, !dbg !6
  %133 = icmp samesign ult i32 %127, %126, !dbg !6
  %134 = add nuw nsw i32 %127, 1, !dbg !6
  br i1 %133, label %for15, label %next, !dbg !6, !llvm.loop !14

next:                                             ; preds = %for15
  %.neg = xor i64 %125, -1, !dbg !6
  %135 = add i64 %124, %.neg, !dbg !6
  %136 = icmp ugt i64 %124, 1073741824, !dbg !6
  br i1 %136, label %part, label %done16, !dbg !6, !llvm.loop !15

done16:                                           ; preds = %next, %for13
  %137 = icmp slt i32 %106, %93, !dbg !6
  %138 = add nuw nsw i32 %106, 1, !dbg !6
  br i1 %137, label %for13, label %end2, !dbg !6, !llvm.loop !16

then17:                                           ; preds = %end2
  %narrow36 = mul nuw i32 %10, %11, !dbg !11
  %139 = zext i32 %narrow36 to i64, !dbg !11
  %140 = zext nneg i32 %13 to i64, !dbg !11
  %141 = zext nneg i32 %12 to i64, !dbg !11
  %142 = add nuw nsw i64 %139, %141, !dbg !11
  %143 = mul nuw i64 %142, %140, !dbg !11
  %144 = zext nneg i32 %14 to i64, !dbg !11
  %145 = add i64 %143, %144, !dbg !11
  %146 = shl i64 %145, 7, !dbg !11
  %147 = getelementptr i8, ptr addrspace(1) %9, i64 %146, !dbg !11
  %148 = ptrtoint ptr addrspace(1) %147 to i64, !dbg !11
  call void asm sideeffect "multimem.red.release.sys.global.add.u32 [$0], $1;", "l,r,~{memory}"(i64 %148, i32 1) #4, !dbg !11
  %149 = getelementptr i8, ptr addrspace(1) %1, i64 %146, !dbg !11
  %150 = getelementptr i8, ptr addrspace(1) %149, i64 4, !dbg !11
  %151 = load i32, ptr addrspace(1) %150, align 4, !dbg !11
  %152 = add i32 %151, 1, !dbg !11
  %153 = mul i32 %152, %3, !dbg !11
  br label %while19, !dbg !11

end18:                                            ; preds = %done21, %end2
  call void @llvm.nvvm.barrier.cta.sync.aligned.all(i32 0), !dbg !11
  ret void, !dbg !11

while19:                                          ; preds = %while19, %then17
  %154 = load atomic i32, ptr addrspace(1) %149 acquire, align 4, !dbg !11
  %155 = sub i32 %154, %153, !dbg !11
  %156 = icmp slt i32 %155, 0, !dbg !11
  br i1 %156, label %while19, label %done21, !dbg !11, !llvm.loop !17

done21:                                           ; preds = %while19
  store i32 %152, ptr addrspace(1) %150, align 4, !dbg !11
  br label %end18, !dbg !11
}

; Function Attrs: nocallback nofree nosync nounwind speculatable willreturn memory(none)
declare noundef range(i32 0, 65535) i32 @llvm.nvvm.read.ptx.sreg.ctaid.z() #1

; Function Attrs: nocallback nofree nosync nounwind speculatable willreturn memory(none)
declare noundef range(i32 1, 65536) i32 @llvm.nvvm.read.ptx.sreg.nctaid.y() #1

; Function Attrs: nocallback nofree nosync nounwind speculatable willreturn memory(none)
declare noundef range(i32 0, 65535) i32 @llvm.nvvm.read.ptx.sreg.ctaid.y() #1

; Function Attrs: nocallback nofree nosync nounwind speculatable willreturn memory(none)
declare noundef range(i32 1, -2147483648) i32 @llvm.nvvm.read.ptx.sreg.nctaid.x() #1

; Function Attrs: nocallback nofree nosync nounwind speculatable willreturn memory(none)
declare noundef range(i32 0, 2147483647) i32 @llvm.nvvm.read.ptx.sreg.ctaid.x() #1

; Function Attrs: nocallback nofree nosync nounwind speculatable willreturn memory(none)
declare noundef range(i32 0, 1024) i32 @llvm.nvvm.read.ptx.sreg.tid.x() #1

; Function Attrs: convergent nocallback nounwind
declare void @llvm.nvvm.barrier.cta.sync.aligned.all(i32) #2

; Function Attrs: nocallback nocreateundeforpoison nofree nosync nounwind speculatable willreturn memory(none)
declare i64 @llvm.smax.i64(i64, i64) #3

; Function Attrs: nocallback nocreateundeforpoison nofree nosync nounwind speculatable willreturn memory(none)
declare i64 @llvm.ssub.sat.i64(i64, i64) #3

; Function Attrs: nocallback nocreateundeforpoison nofree nosync nounwind speculatable willreturn memory(none)
declare i64 @llvm.smin.i64(i64, i64) #3

; Function Attrs: nocallback nocreateundeforpoison nofree nosync nounwind speculatable willreturn memory(none)
declare i64 @llvm.umin.i64(i64, i64) #3

attributes #0 = { "nvvm.reqntid"="256,1,1" }
attributes #1 = { nocallback nofree nosync nounwind speculatable willreturn memory(none) }
attributes #2 = { convergent nocallback nounwind }
attributes #3 = { nocallback nocreateundeforpoison nofree nosync nounwind speculatable willreturn memory(none) }
attributes #4 = { nounwind }

!llvm.module.flags = !{!0}
!llvm.dbg.cu = !{!1}

!0 = !{i32 2, !"Debug Info Version", i32 3}
!1 = distinct !DICompileUnit(language: DW_LANG_C, file: !2, producer: "warpweft", isOptimized: true, runtimeVersion: 0, emissionKind: DebugDirectivesOnly, splitDebugInlining: false)
!2 = !DIFile(filename: "examples/broadcast.weft", directory: "")
!3 = distinct !DISubprogram(name: "broadcast", linkageName: "broadcast", scope: !2, file: !2, line: 2, type: !4, scopeLine: 2, spFlags: DISPFlagDefinition | DISPFlagOptimized, unit: !1)
!4 = !DISubroutineType(types: !5)
!5 = !{}
!6 = !DILocation(line: 10, column: 13, scope: !3)
!7 = !DILocation(line: 5, column: 5, scope: !3)
!8 = !DILocation(line: 6, column: 8, scope: !3)
!9 = distinct !{!9, !10}
!10 = !{!"llvm.loop.unroll.disable"}
!11 = !DILocation(line: 13, column: 5, scope: !3)
!12 = distinct !{!12, !10}
!13 = distinct !{!13, !10}
!14 = distinct !{!14, !10}
!15 = distinct !{!15, !10}
!16 = distinct !{!16, !10}
!17 = distinct !{!17, !10}
