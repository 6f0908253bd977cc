; ModuleID = 'weft'
source_filename = "weft"
target datalayout = "e-p6:32:32-i64:64-i128:128-i256:256-v16:16-v32:32-n16:32:64"
target triple = "nvptx64-nvidia-cuda"

define ptx_kernel void @broadcast(ptr addrspace(1) align 16 %0, ptr addrspace(1) align 8 %1, i64 %2, i32 %3, i32 %4, i64 %5, i64 %6) #0 !dbg !3 {
entry:
  %7 = inttoptr i64 %5 to ptr addrspace(1), !dbg !6
  %8 = inttoptr i64 %6 to ptr addrspace(1), !dbg !6
  %9 = call range(i32 0, 65535) i32 @llvm.nvvm.read.ptx.sreg.ctaid.z(), !dbg !7
  %10 = call range(i32 1, 65536) i32 @llvm.nvvm.read.ptx.sreg.nctaid.y(), !dbg !7
  %11 = call range(i32 0, 65535) i32 @llvm.nvvm.read.ptx.sreg.ctaid.y(), !dbg !7
  %12 = call range(i32 1, -2147483648) i32 @llvm.nvvm.read.ptx.sreg.nctaid.x(), !dbg !7
  %13 = call range(i32 0, 2147483647) i32 @llvm.nvvm.read.ptx.sreg.ctaid.x(), !dbg !7
  %14 = call range(i32 0, 256) i32 @llvm.nvvm.read.ptx.sreg.tid.x(), !dbg !7
  call void @llvm.nvvm.barrier.cta.sync.aligned.all(i32 0), !dbg !7
  %15 = icmp eq i32 %14, 0, !dbg !7
  br i1 %15, label %then, label %end, !dbg !7

then:                                             ; preds = %entry
  %narrow = mul nuw i32 %9, %10, !dbg !7
  %16 = zext i32 %narrow to i64, !dbg !7
  %17 = zext nneg i32 %12 to i64, !dbg !7
  %18 = zext nneg i32 %11 to i64, !dbg !7
  %19 = add nuw nsw i64 %16, %18, !dbg !7
  %20 = mul nuw i64 %19, %17, !dbg !7
  %21 = zext nneg i32 %13 to i64, !dbg !7
  %22 = add i64 %20, %21, !dbg !7
  %23 = shl i64 %22, 7, !dbg !7
  %24 = add i64 %2, %23, !dbg !7
  call void asm sideeffect "multimem.red.release.sys.global.add.u32 [$0], $1;", "l,r,~{memory}"(i64 %24, i32 1) #4, !dbg !7
  %25 = getelementptr i8, ptr addrspace(1) %1, i64 %23, !dbg !7
  %26 = getelementptr i8, ptr addrspace(1) %25, i64 4, !dbg !7
  %27 = load i32, ptr addrspace(1) %26, align 4, !dbg !7
  %28 = add i32 %27, 1, !dbg !7
  %29 = mul i32 %28, %3, !dbg !7
  br label %while, !dbg !7

end:                                              ; preds = %done, %entry
  call void @llvm.nvvm.barrier.cta.sync.aligned.all(i32 0), !dbg !7
  %30 = icmp eq i32 %4, 0, !dbg !8
  br i1 %30, label %for, label %end2, !dbg !8

while:                                            ; preds = %while, %then
  %31 = load atomic i32, ptr addrspace(1) %25 acquire, align 4, !dbg !7
  %32 = sub i32 %31, %29, !dbg !7
  %33 = icmp slt i32 %32, 0, !dbg !7
  br i1 %33, label %while, label %done, !dbg !7, !llvm.loop !9

done:                                             ; preds = %while
  store i32 %28, ptr addrspace(1) %26, align 4, !dbg !7
  br label %end, !dbg !7

end2:                                             ; preds = %then8, %done12, %done16, %end
  call void @llvm.nvvm.barrier.cta.sync.aligned.all(i32 0), !dbg !11
  br i1 %15, label %then17, label %end18, !dbg !11

for:                                              ; preds = %end
  %34 = shl nuw nsw i32 %14, 3, !dbg !6
  %35 = zext nneg i32 %34 to i64, !dbg !6
  %36 = zext nneg i32 %13 to i64, !dbg !6
  %37 = shl nuw nsw i64 %36, 11, !dbg !6
  %38 = or disjoint i64 %37, %35, !dbg !6
  %39 = shl nuw nsw i64 %38, 1, !dbg !6
  %40 = getelementptr i8, ptr addrspace(1) %0, i64 %39, !dbg !6
  %41 = or disjoint i64 %38, 7, !dbg !6
  %42 = icmp samesign ult i64 %41, 1003, !dbg !6
  br i1 %42, label %then4, label %else, !dbg !6

then4:                                            ; preds = %for
  %43 = load <8 x half>, ptr addrspace(1) %40, align 16, !dbg !6
  br label %end5, !dbg !6

end5:                                             ; preds = %for6, %else, %then4
  %.024 = phi <8 x half> [ %43, %then4 ], [ zeroinitializer, %else ], [ %59, %for6 ], !dbg !6
  %44 = getelementptr i8, ptr addrspace(1) %7, i64 %39, !dbg !6
  br i1 %42, label %then8, label %else10, !dbg !6

else:                                             ; preds = %for
  %45 = sub nsw i64 1003, %38, !dbg !6
  %46 = call i64 @llvm.smax.i64(i64 %45, i64 0), !dbg !6
  %47 = call i64 @llvm.smin.i64(i64 %46, i64 8), !dbg !6
  %48 = add nsw i64 %47, -1, !dbg !6
  %.not = icmp eq i64 %46, 0, !dbg !6
  br i1 %.not, label %end5, label %for6, !dbg !6

for6:                                             ; preds = %else, %for6
  %.0 = phi <8 x half> [ %59, %for6 ], [ zeroinitializer, %else ], !dbg !6
  %49 = phi i64 [ %61, %for6 ], [ 0, %else ], !dbg !6
  %50 = shl nuw i64 %49, 1, !dbg !6
  %51 = getelementptr i8, ptr addrspace(1) %40, i64 %50, !dbg !6
  %52 = load half, ptr addrspace(1) %51, align 2, !dbg !6
  %53 = insertelement <8 x half> poison, half %52, i64 0, !dbg !6
  %54 = shufflevector <8 x half> %53, <8 x half> poison, <8 x i32> zeroinitializer, !dbg !6
  %55 = trunc i64 %49 to i32, !dbg !6
  %56 = insertelement <8 x i32> poison, i32 %55, i64 0, !dbg !6
  %57 = shufflevector <8 x i32> %56, <8 x i32> poison, <8 x i32> zeroinitializer, !dbg !6
  %58 = icmp eq <8 x i32> %57, <i32 0, i32 1, i32 2, i32 3, i32 4, i32 5, i32 6, i32 7>, !dbg !6
  %59 = select <8 x i1> %58, <8 x half> %54, <8 x half> %.0, !dbg !6
  %60 = icmp slt i64 %49, %48, !dbg !6
  %61 = add nuw nsw i64 %49, 1, !dbg !6
  br i1 %60, label %for6, label %end5, !dbg !6, !llvm.loop !12

then8:                                            ; preds = %end5
  %62 = bitcast <8 x half> %.024 to <4 x i32>, !dbg !6
  %63 = extractelement <4 x i32> %62, i64 0, !dbg !6
  %64 = extractelement <4 x i32> %62, i64 1, !dbg !6
  %65 = extractelement <4 x i32> %62, i64 2, !dbg !6
  %66 = extractelement <4 x i32> %62, i64 3, !dbg !6
  %67 = ptrtoint ptr addrspace(1) %44 to i64, !dbg !6
  call void asm sideeffect "multimem.st.relaxed.sys.global.v4.f16x2 [$0], {$1, $2, $3, $4};", "l,r,r,r,r,~{memory}"(i64 %67, i32 %63, i32 %64, i32 %65, i32 %66) #4, !dbg !6
  br label %end2, !dbg !6

else10:                                           ; preds = %end5
  %68 = sub nsw i64 1003, %38, !dbg !6
  %69 = call i64 @llvm.smax.i64(i64 %68, i64 0), !dbg !6
  %70 = call i64 @llvm.smin.i64(i64 %69, i64 8), !dbg !6
  %71 = lshr i64 %70, 1, !dbg !6
  %72 = add nsw i64 %71, -1, !dbg !6
  %.not25 = icmp eq i64 %71, 0, !dbg !6
  br i1 %.not25, label %done12, label %for11.preheader, !dbg !6

for11.preheader:                                  ; preds = %else10
  %73 = shufflevector <8 x half> %.024, <8 x half> poison, <2 x i32> <i32 0, i32 1>
  %74 = shufflevector <8 x half> %.024, <8 x half> poison, <2 x i32> <i32 2, i32 3>
  %75 = shufflevector <8 x half> %.024, <8 x half> poison, <2 x i32> <i32 4, i32 5>
  %76 = shufflevector <8 x half> %.024, <8 x half> poison, <2 x i32> <i32 6, i32 7>
  br label %for11, !dbg !6

for11:                                            ; preds = %for11.preheader, %for11
  %77 = phi i64 [ %89, %for11 ], [ 0, %for11.preheader ], !dbg !6
  %78 = icmp eq i64 %77, 1, !dbg !6
  %79 = select i1 %78, <2 x half> %74, <2 x half> %73, !dbg !6
  %80 = icmp eq i64 %77, 2, !dbg !6
  %81 = select i1 %80, <2 x half> %75, <2 x half> %79, !dbg !6
  %82 = icmp eq i64 %77, 3, !dbg !6
  %83 = select i1 %82, <2 x half> %76, <2 x half> %81, !dbg !6
  %84 = shl i64 %77, 2, !dbg !6
  %85 = getelementptr i8, ptr addrspace(1) %44, i64 %84, !dbg !6
  %86 = bitcast <2 x half> %83 to i32, !dbg !6
  %87 = ptrtoint ptr addrspace(1) %85 to i64, !dbg !6
  call void asm sideeffect "multimem.st.relaxed.sys.global.f16x2 [$0], $1;", "l,r,~{memory}"(i64 %87, i32 %86) #4, !dbg !6
  %88 = icmp slt i64 %77, %72, !dbg !6
  %89 = add nuw nsw i64 %77, 1, !dbg !6
  br i1 %88, label %for11, label %done12, !dbg !6, !llvm.loop !13

done12:                                           ; preds = %for11, %else10
  %90 = and i64 %70, 14, !dbg !6
  %91 = add nsw i64 %70, -1, !dbg !6
  %.not26 = icmp eq i64 %90, %70, !dbg !6
  br i1 %.not26, label %end2, label %for13.preheader, !dbg !6

for13.preheader:                                  ; preds = %done12
  %92 = extractelement <8 x half> %.024, i64 0
  %93 = extractelement <8 x half> %.024, i64 1
  %94 = extractelement <8 x half> %.024, i64 2
  %95 = extractelement <8 x half> %.024, i64 3
  %96 = extractelement <8 x half> %.024, i64 4
  %97 = extractelement <8 x half> %.024, i64 5
  %98 = extractelement <8 x half> %.024, i64 6
  %99 = extractelement <8 x half> %.024, i64 7
  %100 = sext i32 %3 to i64
  %101 = add nsw i64 %100, -1
  %102 = icmp sgt i32 %3, 0
  br label %for13, !dbg !6

for13:                                            ; preds = %for13.preheader, %done16
  %103 = phi i64 [ %130, %done16 ], [ %90, %for13.preheader ], !dbg !6
  br i1 %102, label %for15.preheader, label %done16, !dbg !6

for15.preheader:                                  ; preds = %for13
  %104 = icmp eq i64 %103, 7, !dbg !6
  %105 = icmp eq i64 %103, 6, !dbg !6
  %106 = icmp eq i64 %103, 5, !dbg !6
  %107 = icmp eq i64 %103, 4, !dbg !6
  %108 = icmp eq i64 %103, 3, !dbg !6
  %109 = icmp eq i64 %103, 2, !dbg !6
  %110 = icmp eq i64 %103, 1, !dbg !6
  %111 = select i1 %110, half %93, half %92, !dbg !6
  %112 = select i1 %109, half %94, half %111, !dbg !6
  %113 = select i1 %108, half %95, half %112, !dbg !6
  %114 = select i1 %107, half %96, half %113, !dbg !6
  %115 = select i1 %106, half %97, half %114, !dbg !6
  %116 = select i1 %105, half %98, half %115, !dbg !6
  %117 = select i1 %104, half %99, half %116, !dbg !6
  %118 = shl nuw i64 %103, 1
  %119 = bitcast half %117 to i16
  br label %for15, !dbg !6

for15:                                            ; preds = %for15.preheader, %for15
  %120 = phi i64 [ %128, %for15 ], [ 0, %for15.preheader ], !dbg !6
  %121 = shl i64 %120, 3, !dbg !6
  %122 = getelementptr i8, ptr addrspace(1) %8, i64 %121, !dbg !6
  %123 = load i64, ptr addrspace(1) %122, align 8, !dbg !6
  %124 = inttoptr i64 %123 to ptr addrspace(1), !dbg !6
  %125 = getelementptr i8, ptr addrspace(1) %124, i64 %39, !dbg !6
  %126 = getelementptr i8, ptr addrspace(1) %125, i64 %118, !dbg !6
  store atomic i16 %119, ptr addrspace(1) %126 monotonic, align 2, !dbg !6
  %127 = icmp slt i64 %120, %101, !dbg !6
  %128 = add nuw nsw i64 %120, 1, !dbg !6
  br i1 %127, label %for15, label %done16, !dbg !6, !llvm.loop !14

done16:                                           ; preds = %for15, %for13
  %129 = icmp slt i64 %103, %91, !dbg !6
  %130 = add nuw nsw i64 %103, 1, !dbg !6
  br i1 %129, label %for13, label %end2, !dbg !6, !llvm.loop !15

then17:                                           ; preds = %end2
  %narrow27 = mul nuw i32 %9, %10, !dbg !11
  %131 = zext i32 %narrow27 to i64, !dbg !11
  %132 = zext nneg i32 %12 to i64, !dbg !11
  %133 = zext nneg i32 %11 to i64, !dbg !11
  %134 = add nuw nsw i64 %131, %133, !dbg !11
  %135 = mul nuw i64 %134, %132, !dbg !11
  %136 = zext nneg i32 %13 to i64, !dbg !11
  %137 = add i64 %135, %136, !dbg !11
  %138 = shl i64 %137, 7, !dbg !11
  %139 = add i64 %2, %138, !dbg !11
  call void asm sideeffect "multimem.red.release.sys.global.add.u32 [$0], $1;", "l,r,~{memory}"(i64 %139, i32 1) #4, !dbg !11
  %140 = getelementptr i8, ptr addrspace(1) %1, i64 %138, !dbg !11
  %141 = getelementptr i8, ptr addrspace(1) %140, i64 4, !dbg !11
  %142 = load i32, ptr addrspace(1) %141, align 4, !dbg !11
  %143 = add i32 %142, 1, !dbg !11
  %144 = mul i32 %143, %3, !dbg !11
  br label %while19, !dbg !11

end18:                                            ; preds = %done21, %end2
  call void @llvm.nvvm.barrier.cta.sync.aligned.all(i32 0), !dbg !11
  ret void, !dbg !11

while19:                                          ; preds = %while19, %then17
  %145 = load atomic i32, ptr addrspace(1) %140 acquire, align 4, !dbg !11
  %146 = sub i32 %145, %144, !dbg !11
  %147 = icmp slt i32 %146, 0, !dbg !11
  br i1 %147, label %while19, label %done21, !dbg !11, !llvm.loop !16

done21:                                           ; preds = %while19
  store i32 %143, ptr addrspace(1) %141, align 4, !dbg !11
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
