; ModuleID = 'weft'
source_filename = "weft"
target datalayout = "e-p6:32:32-i64:64-i128:128-i256:256-v16:16-v32:32-n16:32:64"
target triple = "nvptx64-nvidia-cuda"

define ptx_kernel void @allreduce_one_shot(ptr addrspace(1) align 16 %0, ptr addrspace(1) align 16 %1, ptr addrspace(1) align 8 %2, i64 %3, i32 %4, i64 %5, i64 %6) #0 !dbg !3 {
entry:
  %7 = inttoptr i64 %5 to ptr addrspace(1), !dbg !6
  %8 = inttoptr i64 %6 to ptr addrspace(1), !dbg !6
  %9 = inttoptr i64 %3 to ptr addrspace(1), !dbg !7
  %10 = call range(i32 0, 256) i32 @llvm.nvvm.read.ptx.sreg.tid.x(), !dbg !8
  %11 = call range(i32 0, 2147483647) i32 @llvm.nvvm.read.ptx.sreg.ctaid.x(), !dbg !8
  %12 = call range(i32 0, 65535) i32 @llvm.nvvm.read.ptx.sreg.ctaid.z(), !dbg !7
  %13 = call range(i32 1, 65536) i32 @llvm.nvvm.read.ptx.sreg.nctaid.y(), !dbg !7
  %14 = call range(i32 0, 65535) i32 @llvm.nvvm.read.ptx.sreg.ctaid.y(), !dbg !7
  %15 = call range(i32 1, -2147483648) i32 @llvm.nvvm.read.ptx.sreg.nctaid.x(), !dbg !7
  call void @llvm.nvvm.barrier.cta.sync.aligned.all(i32 0), !dbg !7
  %16 = icmp eq i32 %10, 0, !dbg !7
  br i1 %16, label %then, label %end, !dbg !7

then:                                             ; preds = %entry
  %narrow = mul nuw i32 %12, %13, !dbg !7
  %17 = zext i32 %narrow to i64, !dbg !7
  %18 = zext nneg i32 %15 to i64, !dbg !7
  %19 = zext nneg i32 %14 to i64, !dbg !7
  %20 = add nuw nsw i64 %17, %19, !dbg !7
  %21 = mul nuw i64 %20, %18, !dbg !7
  %22 = zext nneg i32 %11 to i64, !dbg !7
  %23 = add i64 %21, %22, !dbg !7
  %24 = shl i64 %23, 7, !dbg !7
  %25 = getelementptr i8, ptr addrspace(1) %9, i64 %24, !dbg !7
  %26 = ptrtoint ptr addrspace(1) %25 to i64, !dbg !7
  call void asm sideeffect "multimem.red.release.sys.global.add.u32 [$0], $1;", "l,r,~{memory}"(i64 %26, i32 1) #4, !dbg !7
  %27 = getelementptr i8, ptr addrspace(1) %2, i64 %24, !dbg !7
  %28 = getelementptr i8, ptr addrspace(1) %27, i64 4, !dbg !7
  %29 = load i32, ptr addrspace(1) %28, align 4, !dbg !7
  %30 = add i32 %29, 1, !dbg !7
  %31 = mul i32 %30, %4, !dbg !7
  br label %while, !dbg !7

end:                                              ; preds = %done, %entry
  call void @llvm.nvvm.barrier.cta.sync.aligned.all(i32 0), !dbg !7
  %32 = shl nuw nsw i32 %10, 3, !dbg !6
  %33 = zext nneg i32 %32 to i64, !dbg !6
  %34 = zext nneg i32 %11 to i64, !dbg !6
  %35 = shl nuw nsw i64 %34, 11, !dbg !6
  %36 = or disjoint i64 %35, %33, !dbg !6
  %37 = shl nuw nsw i64 %36, 1, !dbg !6
  %38 = getelementptr i8, ptr addrspace(1) %7, i64 %37, !dbg !6
  %39 = or disjoint i64 %36, 7, !dbg !6
  %40 = icmp samesign ult i64 %39, 1003, !dbg !6
  br i1 %40, label %then2, label %else, !dbg !6

while:                                            ; preds = %while, %then
  %41 = load atomic i32, ptr addrspace(1) %27 acquire, align 4, !dbg !7
  %42 = sub i32 %41, %31, !dbg !7
  %43 = icmp slt i32 %42, 0, !dbg !7
  br i1 %43, label %while, label %done, !dbg !7, !llvm.loop !9

done:                                             ; preds = %while
  store i32 %30, ptr addrspace(1) %28, align 4, !dbg !7
  br label %end, !dbg !7

then2:                                            ; preds = %end
  %44 = ptrtoint ptr addrspace(1) %38 to i64, !dbg !6
  %45 = call { i32, i32, i32, i32 } asm sideeffect "multimem.ld_reduce.relaxed.sys.global.add.acc::f32.v4.f16x2 {$0, $1, $2, $3}, [$4];", "=r,=r,=r,=r,l,~{memory}"(i64 %44) #4, !dbg !6
  %46 = extractvalue { i32, i32, i32, i32 } %45, 0, !dbg !6
  %47 = extractvalue { i32, i32, i32, i32 } %45, 1, !dbg !6
  %48 = extractvalue { i32, i32, i32, i32 } %45, 2, !dbg !6
  %49 = extractvalue { i32, i32, i32, i32 } %45, 3, !dbg !6
  %50 = insertelement <4 x i32> poison, i32 %46, i64 0, !dbg !6
  %51 = insertelement <4 x i32> %50, i32 %47, i64 1, !dbg !6
  %52 = insertelement <4 x i32> %51, i32 %48, i64 2, !dbg !6
  %53 = insertelement <4 x i32> %52, i32 %49, i64 3, !dbg !6
  %54 = bitcast <4 x i32> %53 to <8 x half>, !dbg !6
  br label %end3, !dbg !6

end3:                                             ; preds = %done9, %done5, %then2
  %.035 = phi <8 x half> [ %54, %then2 ], [ %.134, %done5 ], [ %104, %done9 ], !dbg !6
  %55 = getelementptr i8, ptr addrspace(1) %1, i64 %37, !dbg !11
  br i1 %40, label %then10, label %else12, !dbg !11

else:                                             ; preds = %end
  %56 = sub nsw i64 1003, %36, !dbg !6
  %57 = call i64 @llvm.smax.i64(i64 %56, i64 0), !dbg !6
  %58 = call i64 @llvm.smin.i64(i64 %57, i64 8), !dbg !6
  %59 = lshr i64 %58, 1, !dbg !6
  %60 = trunc nuw nsw i64 %59 to i32, !dbg !6
  %61 = add nsw i32 %60, -1, !dbg !6
  %.not = icmp eq i64 %59, 0, !dbg !6
  br i1 %.not, label %done5, label %for4, !dbg !6

for4:                                             ; preds = %else, %for4
  %.033 = phi <8 x half> [ %70, %for4 ], [ zeroinitializer, %else ], !dbg !6
  %.031 = phi ptr addrspace(1) [ %71, %for4 ], [ %38, %else ], !dbg !6
  %62 = phi i32 [ %73, %for4 ], [ 0, %else ], !dbg !6
  %63 = ptrtoint ptr addrspace(1) %.031 to i64, !dbg !6
  %64 = call i32 asm sideeffect "multimem.ld_reduce.relaxed.sys.global.add.acc::f32.f16x2 $0, [$1];", "=r,l,~{memory}"(i64 %63) #4, !dbg !6
  %65 = bitcast i32 %64 to <2 x half>, !dbg !6
  %66 = shufflevector <2 x half> %65, <2 x half> poison, <8 x i32> <i32 0, i32 1, i32 0, i32 1, i32 0, i32 1, i32 0, i32 1>, !dbg !6
  %67 = insertelement <8 x i32> poison, i32 %62, i64 0, !dbg !6
  %68 = shufflevector <8 x i32> %67, <8 x i32> poison, <8 x i32> zeroinitializer, !dbg !6
  %69 = icmp eq <8 x i32> %68, <i32 0, i32 0, i32 1, i32 1, i32 2, i32 2, i32 3, i32 3>, !dbg !6
  %70 = select <8 x i1> %69, <8 x half> %66, <8 x half> %.033, !dbg !6
  %71 = getelementptr i8, ptr addrspace(1) %.031, i64 4, !dbg !6
  %72 = icmp slt i32 %62, %61, !dbg !6
  %73 = add nuw nsw i32 %62, 1, !dbg !6
  br i1 %72, label %for4, label %done5, !dbg !6, !llvm.loop !12

done5:                                            ; preds = %for4, %else
  %.134 = phi <8 x half> [ zeroinitializer, %else ], [ %70, %for4 ], !dbg !6
  %74 = and i64 %58, 14, !dbg !6
  %75 = trunc nuw nsw i64 %58 to i32, !dbg !6
  %76 = add nsw i32 %75, -1, !dbg !6
  %.not36 = icmp eq i64 %74, %58, !dbg !6
  br i1 %.not36, label %end3, label %for6.preheader, !dbg !6

for6.preheader:                                   ; preds = %done5
  %77 = trunc nuw nsw i64 %74 to i32, !dbg !6
  %78 = sext i32 %4 to i64
  %79 = add nsw i64 %78, -1
  %80 = icmp sgt i32 %4, 0
  br label %for6, !dbg !6

for6:                                             ; preds = %for6.preheader, %done9
  %.2 = phi <8 x half> [ %104, %done9 ], [ %.134, %for6.preheader ], !dbg !6
  %81 = phi i32 [ %106, %done9 ], [ %77, %for6.preheader ], !dbg !6
  br i1 %80, label %for8.preheader, label %done9, !dbg !6

for8.preheader:                                   ; preds = %for6
  %82 = shl nuw i32 %81, 1
  %83 = zext i32 %82 to i64
  br label %for8, !dbg !6

for8:                                             ; preds = %for8.preheader, %for8
  %.032 = phi float [ %94, %for8 ], [ 0.000000e+00, %for8.preheader ], !dbg !6
  %.030 = phi ptr addrspace(1) [ %95, %for8 ], [ %8, %for8.preheader ], !dbg !6
  %84 = phi i64 [ %97, %for8 ], [ 0, %for8.preheader ], !dbg !6
  %85 = load i64, ptr addrspace(1) %.030, align 8, !dbg !6
  %86 = inttoptr i64 %85 to ptr addrspace(1), !dbg !6
  %87 = getelementptr i8, ptr addrspace(1) %86, i64 %37, !dbg !6
  %88 = getelementptr i8, ptr addrspace(1) %87, i64 %83, !dbg !6
  %89 = load atomic i16, ptr addrspace(1) %88 monotonic, align 2, !dbg !6
  %90 = bitcast i16 %89 to half, !dbg !6
  %91 = icmp eq i64 %84, 0, !dbg !6
  %92 = fpext half %90 to float, !dbg !6
  %93 = fadd float %.032, %92, !dbg !6
  %94 = select i1 %91, float %92, float %93, !dbg !6
  %95 = getelementptr i8, ptr addrspace(1) %.030, i64 8, !dbg !6
  %96 = icmp slt i64 %84, %79, !dbg !6
  %97 = add nuw nsw i64 %84, 1, !dbg !6
  br i1 %96, label %for8, label %done9.loopexit, !dbg !6, !llvm.loop !13

done9.loopexit:                                   ; preds = %for8
  %98 = fptrunc float %94 to half, !dbg !6
  br label %done9, !dbg !6

done9:                                            ; preds = %done9.loopexit, %for6
  %.1 = phi half [ 0xH0000, %for6 ], [ %98, %done9.loopexit ], !dbg !6
  %99 = insertelement <8 x half> poison, half %.1, i64 0, !dbg !6
  %100 = shufflevector <8 x half> %99, <8 x half> poison, <8 x i32> zeroinitializer, !dbg !6
  %101 = insertelement <8 x i32> poison, i32 %81, i64 0, !dbg !6
  %102 = shufflevector <8 x i32> %101, <8 x i32> poison, <8 x i32> zeroinitializer, !dbg !6
  %103 = icmp eq <8 x i32> %102, <i32 0, i32 1, i32 2, i32 3, i32 4, i32 5, i32 6, i32 7>, !dbg !6
  %104 = select <8 x i1> %103, <8 x half> %100, <8 x half> %.2, !dbg !6
  %105 = icmp slt i32 %81, %76, !dbg !6
  %106 = add nuw nsw i32 %81, 1, !dbg !6
  br i1 %105, label %for6, label %end3, !dbg !6, !llvm.loop !14

then10:                                           ; preds = %end3
  store <8 x half> %.035, ptr addrspace(1) %55, align 16, !dbg !11
  br label %end11, !dbg !11

end11:                                            ; preds = %for13, %else12, %then10
  call void @llvm.nvvm.barrier.cta.sync.aligned.all(i32 0), !dbg !15
  br i1 %16, label %then15, label %end16, !dbg !15

else12:                                           ; preds = %end3
  %107 = sub nsw i64 1003, %36, !dbg !11
  %108 = call i64 @llvm.smax.i64(i64 %107, i64 0), !dbg !11
  %109 = call i64 @llvm.smin.i64(i64 %108, i64 8), !dbg !11
  %110 = trunc nuw nsw i64 %109 to i32, !dbg !11
  %111 = add nsw i32 %110, -1, !dbg !11
  %.not37 = icmp eq i64 %108, 0, !dbg !11
  br i1 %.not37, label %end11, label %for13.preheader, !dbg !11

for13.preheader:                                  ; preds = %else12
  %112 = extractelement <8 x half> %.035, i64 0
  %113 = extractelement <8 x half> %.035, i64 1
  %114 = extractelement <8 x half> %.035, i64 2
  %115 = extractelement <8 x half> %.035, i64 3
  %116 = extractelement <8 x half> %.035, i64 4
  %117 = extractelement <8 x half> %.035, i64 5
  %118 = extractelement <8 x half> %.035, i64 6
  %119 = extractelement <8 x half> %.035, i64 7
  br label %for13, !dbg !11

for13:                                            ; preds = %for13.preheader, %for13
  %.0 = phi ptr addrspace(1) [ %135, %for13 ], [ %55, %for13.preheader ], !dbg !11
  %120 = phi i32 [ %137, %for13 ], [ 0, %for13.preheader ], !dbg !11
  %121 = icmp eq i32 %120, 1, !dbg !11
  %122 = select i1 %121, half %113, half %112, !dbg !11
  %123 = icmp eq i32 %120, 2, !dbg !11
  %124 = select i1 %123, half %114, half %122, !dbg !11
  %125 = icmp eq i32 %120, 3, !dbg !11
  %126 = select i1 %125, half %115, half %124, !dbg !11
  %127 = icmp eq i32 %120, 4, !dbg !11
  %128 = select i1 %127, half %116, half %126, !dbg !11
  %129 = icmp eq i32 %120, 5, !dbg !11
  %130 = select i1 %129, half %117, half %128, !dbg !11
  %131 = icmp eq i32 %120, 6, !dbg !11
  %132 = select i1 %131, half %118, half %130, !dbg !11
  %133 = icmp eq i32 %120, 7, !dbg !11
  %134 = select i1 %133, half %119, half %132, !dbg !11
  store half %134, ptr addrspace(1) %.0, align 2, !dbg !11
  %135 = getelementptr i8, ptr addrspace(1) %.0, i64 2, !dbg !11
  %136 = icmp slt i32 %120, %111, !dbg !11
  %137 = add nuw nsw i32 %120, 1, !dbg !11
  br i1 %136, label %for13, label %end11, !dbg !11, !llvm.loop !16

then15:                                           ; preds = %end11
  %narrow38 = mul nuw i32 %12, %13, !dbg !15
  %138 = zext i32 %narrow38 to i64, !dbg !15
  %139 = zext nneg i32 %15 to i64, !dbg !15
  %140 = zext nneg i32 %14 to i64, !dbg !15
  %141 = add nuw nsw i64 %138, %140, !dbg !15
  %142 = mul nuw i64 %141, %139, !dbg !15
  %143 = add i64 %142, %34, !dbg !15
  %144 = shl i64 %143, 7, !dbg !15
  %145 = getelementptr i8, ptr addrspace(1) %9, i64 %144, !dbg !15
  %146 = ptrtoint ptr addrspace(1) %145 to i64, !dbg !15
  call void asm sideeffect "multimem.red.release.sys.global.add.u32 [$0], $1;", "l,r,~{memory}"(i64 %146, i32 1) #4, !dbg !15
  %147 = getelementptr i8, ptr addrspace(1) %2, i64 %144, !dbg !15
  %148 = getelementptr i8, ptr addrspace(1) %147, i64 4, !dbg !15
  %149 = load i32, ptr addrspace(1) %148, align 4, !dbg !15
  %150 = add i32 %149, 1, !dbg !15
  %151 = mul i32 %150, %4, !dbg !15
  br label %while17, !dbg !15

end16:                                            ; preds = %done19, %end11
  call void @llvm.nvvm.barrier.cta.sync.aligned.all(i32 0), !dbg !15
  ret void, !dbg !15

while17:                                          ; preds = %while17, %then15
  %152 = load atomic i32, ptr addrspace(1) %147 acquire, align 4, !dbg !15
  %153 = sub i32 %152, %151, !dbg !15
  %154 = icmp slt i32 %153, 0, !dbg !15
  br i1 %154, label %while17, label %done19, !dbg !15, !llvm.loop !17

done19:                                           ; preds = %while17
  store i32 %150, ptr addrspace(1) %148, align 4, !dbg !15
  br label %end16, !dbg !15
}

; Function Attrs: nocallback nofree nosync nounwind speculatable willreturn memory(none)
declare noundef range(i32 0, 1024) i32 @llvm.nvvm.read.ptx.sreg.tid.x() #1

; Function Attrs: nocallback nofree nosync nounwind speculatable willreturn memory(none)
declare noundef range(i32 0, 2147483647) i32 @llvm.nvvm.read.ptx.sreg.ctaid.x() #1

; Function Attrs: nocallback nofree nosync nounwind speculatable willreturn memory(none)
declare noundef range(i32 0, 65535) i32 @llvm.nvvm.read.ptx.sreg.ctaid.z() #1

; Function Attrs: nocallback nofree nosync nounwind speculatable willreturn memory(none)
declare noundef range(i32 1, 65536) i32 @llvm.nvvm.read.ptx.sreg.nctaid.y() #1

; Function Attrs: nocallback nofree nosync nounwind speculatable willreturn memory(none)
declare noundef range(i32 0, 65535) i32 @llvm.nvvm.read.ptx.sreg.ctaid.y() #1

; Function Attrs: nocallback nofree nosync nounwind speculatable willreturn memory(none)
declare noundef range(i32 1, -2147483648) i32 @llvm.nvvm.read.ptx.sreg.nctaid.x() #1

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
!2 = !DIFile(filename: "examples/allreduce_one_shot.weft", directory: "")
!3 = distinct !DISubprogram(name: "allreduce_one_shot", linkageName: "allreduce_one_shot", scope: !2, file: !2, line: 2, type: !4, scopeLine: 2, spFlags: DISPFlagDefinition | DISPFlagOptimized, unit: !1)
!4 = !DISubroutineType(types: !5)
!5 = !{}
!6 = !DILocation(line: 11, column: 20, scope: !3)
!7 = !DILocation(line: 9, column: 5, scope: !3)
!8 = !DILocation(line: 6, column: 46, scope: !3)
!9 = distinct !{!9, !10}
!10 = !{!"llvm.loop.unroll.disable"}
!11 = !DILocation(line: 11, column: 9, scope: !3)
!12 = distinct !{!12, !10}
!13 = distinct !{!13, !10}
!14 = distinct !{!14, !10}
!15 = !DILocation(line: 13, column: 5, scope: !3)
!16 = distinct !{!16, !10}
!17 = distinct !{!17, !10}
