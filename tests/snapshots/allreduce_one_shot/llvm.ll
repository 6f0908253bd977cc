; ModuleID = 'weft'
source_filename = "weft"
target datalayout = "e-p6:32:32-i64:64-i128:128-i256:256-v16:16-v32:32-n16:32:64"
target triple = "nvptx64-nvidia-cuda"

define ptx_kernel void @allreduce_one_shot(ptr addrspace(1) align 16 %0, ptr addrspace(1) align 16 %1, ptr addrspace(1) align 8 %2, i64 %3, i32 %4, i64 %5, i64 %6) #0 !dbg !3 {
entry:
  %7 = inttoptr i64 %5 to ptr addrspace(1), !dbg !6
  %8 = inttoptr i64 %6 to ptr addrspace(1), !dbg !6
  %9 = call range(i32 0, 256) i32 @llvm.nvvm.read.ptx.sreg.tid.x(), !dbg !7
  %10 = call range(i32 0, 2147483647) i32 @llvm.nvvm.read.ptx.sreg.ctaid.x(), !dbg !7
  %11 = call range(i32 0, 65535) i32 @llvm.nvvm.read.ptx.sreg.ctaid.z(), !dbg !8
  %12 = call range(i32 1, 65536) i32 @llvm.nvvm.read.ptx.sreg.nctaid.y(), !dbg !8
  %13 = call range(i32 0, 65535) i32 @llvm.nvvm.read.ptx.sreg.ctaid.y(), !dbg !8
  %14 = call range(i32 1, -2147483648) i32 @llvm.nvvm.read.ptx.sreg.nctaid.x(), !dbg !8
  call void @llvm.nvvm.barrier.cta.sync.aligned.all(i32 0), !dbg !8
  %15 = icmp eq i32 %9, 0, !dbg !8
  br i1 %15, label %then, label %end, !dbg !8

then:                                             ; preds = %entry
  %narrow = mul nuw i32 %11, %12, !dbg !8
  %16 = zext i32 %narrow to i64, !dbg !8
  %17 = zext nneg i32 %14 to i64, !dbg !8
  %18 = zext nneg i32 %13 to i64, !dbg !8
  %19 = add nuw nsw i64 %16, %18, !dbg !8
  %20 = mul nuw i64 %19, %17, !dbg !8
  %21 = zext nneg i32 %10 to i64, !dbg !8
  %22 = add i64 %20, %21, !dbg !8
  %23 = shl i64 %22, 7, !dbg !8
  %24 = add i64 %3, %23, !dbg !8
  call void asm sideeffect "multimem.red.release.sys.global.add.u32 [$0], $1;", "l,r,~{memory}"(i64 %24, i32 1) #4, !dbg !8
  %25 = getelementptr i8, ptr addrspace(1) %2, i64 %23, !dbg !8
  %26 = getelementptr i8, ptr addrspace(1) %25, i64 4, !dbg !8
  %27 = load i32, ptr addrspace(1) %26, align 4, !dbg !8
  %28 = add i32 %27, 1, !dbg !8
  %29 = mul i32 %28, %4, !dbg !8
  br label %while, !dbg !8

end:                                              ; preds = %done, %entry
  call void @llvm.nvvm.barrier.cta.sync.aligned.all(i32 0), !dbg !8
  %30 = shl nuw nsw i32 %9, 3, !dbg !6
  %31 = zext nneg i32 %30 to i64, !dbg !6
  %32 = zext nneg i32 %10 to i64, !dbg !6
  %33 = shl nuw nsw i64 %32, 11, !dbg !6
  %34 = or disjoint i64 %33, %31, !dbg !6
  %35 = shl nuw nsw i64 %34, 1, !dbg !6
  %36 = getelementptr i8, ptr addrspace(1) %7, i64 %35, !dbg !6
  %37 = or disjoint i64 %34, 7, !dbg !6
  %38 = icmp samesign ult i64 %37, 1003, !dbg !6
  br i1 %38, label %then2, label %else, !dbg !6

while:                                            ; preds = %while, %then
  %39 = load atomic i32, ptr addrspace(1) %25 acquire, align 4, !dbg !8
  %40 = sub i32 %39, %29, !dbg !8
  %41 = icmp slt i32 %40, 0, !dbg !8
  br i1 %41, label %while, label %done, !dbg !8, !llvm.loop !9

done:                                             ; preds = %while
  store i32 %28, ptr addrspace(1) %26, align 4, !dbg !8
  br label %end, !dbg !8

then2:                                            ; preds = %end
  %42 = ptrtoint ptr addrspace(1) %36 to i64, !dbg !6
  %43 = call { i32, i32, i32, i32 } asm sideeffect "multimem.ld_reduce.relaxed.sys.global.add.acc::f32.v4.f16x2 {$0, $1, $2, $3}, [$4];", "=r,=r,=r,=r,l,~{memory}"(i64 %42) #4, !dbg !6
  %44 = extractvalue { i32, i32, i32, i32 } %43, 0, !dbg !6
  %45 = extractvalue { i32, i32, i32, i32 } %43, 1, !dbg !6
  %46 = extractvalue { i32, i32, i32, i32 } %43, 2, !dbg !6
  %47 = extractvalue { i32, i32, i32, i32 } %43, 3, !dbg !6
  %48 = insertelement <4 x i32> poison, i32 %44, i64 0, !dbg !6
  %49 = insertelement <4 x i32> %48, i32 %45, i64 1, !dbg !6
  %50 = insertelement <4 x i32> %49, i32 %46, i64 2, !dbg !6
  %51 = insertelement <4 x i32> %50, i32 %47, i64 3, !dbg !6
  %52 = bitcast <4 x i32> %51 to <8 x half>, !dbg !6
  br label %end3, !dbg !6

end3:                                             ; preds = %done9, %done5, %then2
  %.026 = phi <8 x half> [ %52, %then2 ], [ %.125, %done5 ], [ %102, %done9 ], !dbg !6
  %53 = getelementptr i8, ptr addrspace(1) %1, i64 %35, !dbg !11
  br i1 %38, label %then10, label %else12, !dbg !11

else:                                             ; preds = %end
  %54 = sub nsw i64 1003, %34, !dbg !6
  %55 = call i64 @llvm.smax.i64(i64 %54, i64 0), !dbg !6
  %56 = call i64 @llvm.smin.i64(i64 %55, i64 8), !dbg !6
  %57 = lshr i64 %56, 1, !dbg !6
  %58 = add nsw i64 %57, -1, !dbg !6
  %.not = icmp eq i64 %57, 0, !dbg !6
  br i1 %.not, label %done5, label %for4, !dbg !6

for4:                                             ; preds = %else, %for4
  %.024 = phi <8 x half> [ %70, %for4 ], [ zeroinitializer, %else ], !dbg !6
  %59 = phi i64 [ %72, %for4 ], [ 0, %else ], !dbg !6
  %60 = shl i64 %59, 2, !dbg !6
  %61 = getelementptr i8, ptr addrspace(1) %36, i64 %60, !dbg !6
  %62 = ptrtoint ptr addrspace(1) %61 to i64, !dbg !6
  %63 = call i32 asm sideeffect "multimem.ld_reduce.relaxed.sys.global.add.acc::f32.f16x2 $0, [$1];", "=r,l,~{memory}"(i64 %62) #4, !dbg !6
  %64 = bitcast i32 %63 to <2 x half>, !dbg !6
  %65 = shufflevector <2 x half> %64, <2 x half> poison, <8 x i32> <i32 0, i32 1, i32 0, i32 1, i32 0, i32 1, i32 0, i32 1>, !dbg !6
  %66 = trunc i64 %59 to i32, !dbg !6
  %67 = insertelement <8 x i32> poison, i32 %66, i64 0, !dbg !6
  %68 = shufflevector <8 x i32> %67, <8 x i32> poison, <8 x i32> zeroinitializer, !dbg !6
  %69 = icmp eq <8 x i32> %68, <i32 0, i32 0, i32 1, i32 1, i32 2, i32 2, i32 3, i32 3>, !dbg !6
  %70 = select <8 x i1> %69, <8 x half> %65, <8 x half> %.024, !dbg !6
  %71 = icmp slt i64 %59, %58, !dbg !6
  %72 = add nuw nsw i64 %59, 1, !dbg !6
  br i1 %71, label %for4, label %done5, !dbg !6, !llvm.loop !12

done5:                                            ; preds = %for4, %else
  %.125 = phi <8 x half> [ zeroinitializer, %else ], [ %70, %for4 ], !dbg !6
  %73 = and i64 %56, 14, !dbg !6
  %74 = add nsw i64 %56, -1, !dbg !6
  %.not27 = icmp eq i64 %73, %56, !dbg !6
  br i1 %.not27, label %end3, label %for6.preheader, !dbg !6

for6.preheader:                                   ; preds = %done5
  %75 = sext i32 %4 to i64
  %76 = add nsw i64 %75, -1
  %77 = icmp sgt i32 %4, 0
  br label %for6, !dbg !6

for6:                                             ; preds = %for6.preheader, %done9
  %.2 = phi <8 x half> [ %102, %done9 ], [ %.125, %for6.preheader ], !dbg !6
  %78 = phi i64 [ %104, %done9 ], [ %73, %for6.preheader ], !dbg !6
  br i1 %77, label %for8.preheader, label %done9, !dbg !6

for8.preheader:                                   ; preds = %for6
  %79 = shl nuw i64 %78, 1
  br label %for8, !dbg !6

for8:                                             ; preds = %for8.preheader, %for8
  %.0 = phi float [ %92, %for8 ], [ 0.000000e+00, %for8.preheader ], !dbg !6
  %80 = phi i64 [ %94, %for8 ], [ 0, %for8.preheader ], !dbg !6
  %81 = shl i64 %80, 3, !dbg !6
  %82 = getelementptr i8, ptr addrspace(1) %8, i64 %81, !dbg !6
  %83 = load i64, ptr addrspace(1) %82, align 8, !dbg !6
  %84 = inttoptr i64 %83 to ptr addrspace(1), !dbg !6
  %85 = getelementptr i8, ptr addrspace(1) %84, i64 %35, !dbg !6
  %86 = getelementptr i8, ptr addrspace(1) %85, i64 %79, !dbg !6
  %87 = load atomic i16, ptr addrspace(1) %86 monotonic, align 2, !dbg !6
  %88 = bitcast i16 %87 to half, !dbg !6
  %89 = icmp eq i64 %80, 0, !dbg !6
  %90 = fpext half %88 to float, !dbg !6
  %91 = fadd float %.0, %90, !dbg !6
  %92 = select i1 %89, float %90, float %91, !dbg !6
  %93 = icmp slt i64 %80, %76, !dbg !6
  %94 = add nuw nsw i64 %80, 1, !dbg !6
  br i1 %93, label %for8, label %done9.loopexit, !dbg !6, !llvm.loop !13

done9.loopexit:                                   ; preds = %for8
  %95 = fptrunc float %92 to half, !dbg !6
  br label %done9, !dbg !6

done9:                                            ; preds = %done9.loopexit, %for6
  %.1 = phi half [ 0xH0000, %for6 ], [ %95, %done9.loopexit ], !dbg !6
  %96 = insertelement <8 x half> poison, half %.1, i64 0, !dbg !6
  %97 = shufflevector <8 x half> %96, <8 x half> poison, <8 x i32> zeroinitializer, !dbg !6
  %98 = trunc i64 %78 to i32, !dbg !6
  %99 = insertelement <8 x i32> poison, i32 %98, i64 0, !dbg !6
  %100 = shufflevector <8 x i32> %99, <8 x i32> poison, <8 x i32> zeroinitializer, !dbg !6
  %101 = icmp eq <8 x i32> %100, <i32 0, i32 1, i32 2, i32 3, i32 4, i32 5, i32 6, i32 7>, !dbg !6
  %102 = select <8 x i1> %101, <8 x half> %97, <8 x half> %.2, !dbg !6
  %103 = icmp slt i64 %78, %74, !dbg !6
  %104 = add nuw nsw i64 %78, 1, !dbg !6
  br i1 %103, label %for6, label %end3, !dbg !6, !llvm.loop !14

then10:                                           ; preds = %end3
  store <8 x half> %.026, ptr addrspace(1) %53, align 16, !dbg !11
  br label %end11, !dbg !11

end11:                                            ; preds = %for13, %else12, %then10
  call void @llvm.nvvm.barrier.cta.sync.aligned.all(i32 0), !dbg !15
  br i1 %15, label %then15, label %end16, !dbg !15

else12:                                           ; preds = %end3
  %105 = sub nsw i64 1003, %34, !dbg !11
  %106 = call i64 @llvm.smax.i64(i64 %105, i64 0), !dbg !11
  %107 = call i64 @llvm.smin.i64(i64 %106, i64 8), !dbg !11
  %108 = add nsw i64 %107, -1, !dbg !11
  %.not28 = icmp eq i64 %106, 0, !dbg !11
  br i1 %.not28, label %end11, label %for13.preheader, !dbg !11

for13.preheader:                                  ; preds = %else12
  %109 = extractelement <8 x half> %.026, i64 0
  %110 = extractelement <8 x half> %.026, i64 1
  %111 = extractelement <8 x half> %.026, i64 2
  %112 = extractelement <8 x half> %.026, i64 3
  %113 = extractelement <8 x half> %.026, i64 4
  %114 = extractelement <8 x half> %.026, i64 5
  %115 = extractelement <8 x half> %.026, i64 6
  %116 = extractelement <8 x half> %.026, i64 7
  br label %for13, !dbg !11

for13:                                            ; preds = %for13.preheader, %for13
  %117 = phi i64 [ %135, %for13 ], [ 0, %for13.preheader ], !dbg !11
  %118 = icmp eq i64 %117, 1, !dbg !11
  %119 = select i1 %118, half %110, half %109, !dbg !11
  %120 = icmp eq i64 %117, 2, !dbg !11
  %121 = select i1 %120, half %111, half %119, !dbg !11
  %122 = icmp eq i64 %117, 3, !dbg !11
  %123 = select i1 %122, half %112, half %121, !dbg !11
  %124 = icmp eq i64 %117, 4, !dbg !11
  %125 = select i1 %124, half %113, half %123, !dbg !11
  %126 = icmp eq i64 %117, 5, !dbg !11
  %127 = select i1 %126, half %114, half %125, !dbg !11
  %128 = icmp eq i64 %117, 6, !dbg !11
  %129 = select i1 %128, half %115, half %127, !dbg !11
  %130 = icmp eq i64 %117, 7, !dbg !11
  %131 = select i1 %130, half %116, half %129, !dbg !11
  %132 = shl nuw i64 %117, 1, !dbg !11
  %133 = getelementptr i8, ptr addrspace(1) %53, i64 %132, !dbg !11
  store half %131, ptr addrspace(1) %133, align 2, !dbg !11
  %134 = icmp slt i64 %117, %108, !dbg !11
  %135 = add nuw nsw i64 %117, 1, !dbg !11
  br i1 %134, label %for13, label %end11, !dbg !11, !llvm.loop !16

then15:                                           ; preds = %end11
  %narrow29 = mul nuw i32 %11, %12, !dbg !15
  %136 = zext i32 %narrow29 to i64, !dbg !15
  %137 = zext nneg i32 %14 to i64, !dbg !15
  %138 = zext nneg i32 %13 to i64, !dbg !15
  %139 = add nuw nsw i64 %136, %138, !dbg !15
  %140 = mul nuw i64 %139, %137, !dbg !15
  %141 = add i64 %140, %32, !dbg !15
  %142 = shl i64 %141, 7, !dbg !15
  %143 = add i64 %3, %142, !dbg !15
  call void asm sideeffect "multimem.red.release.sys.global.add.u32 [$0], $1;", "l,r,~{memory}"(i64 %143, i32 1) #4, !dbg !15
  %144 = getelementptr i8, ptr addrspace(1) %2, i64 %142, !dbg !15
  %145 = getelementptr i8, ptr addrspace(1) %144, i64 4, !dbg !15
  %146 = load i32, ptr addrspace(1) %145, align 4, !dbg !15
  %147 = add i32 %146, 1, !dbg !15
  %148 = mul i32 %147, %4, !dbg !15
  br label %while17, !dbg !15

end16:                                            ; preds = %done19, %end11
  call void @llvm.nvvm.barrier.cta.sync.aligned.all(i32 0), !dbg !15
  ret void, !dbg !15

while17:                                          ; preds = %while17, %then15
  %149 = load atomic i32, ptr addrspace(1) %144 acquire, align 4, !dbg !15
  %150 = sub i32 %149, %148, !dbg !15
  %151 = icmp slt i32 %150, 0, !dbg !15
  br i1 %151, label %while17, label %done19, !dbg !15, !llvm.loop !17

done19:                                           ; preds = %while17
  store i32 %147, ptr addrspace(1) %145, align 4, !dbg !15
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
!7 = !DILocation(line: 6, column: 46, scope: !3)
!8 = !DILocation(line: 9, column: 5, scope: !3)
!9 = distinct !{!9, !10}
!10 = !{!"llvm.loop.unroll.disable"}
!11 = !DILocation(line: 11, column: 9, scope: !3)
!12 = distinct !{!12, !10}
!13 = distinct !{!13, !10}
!14 = distinct !{!14, !10}
!15 = !DILocation(line: 13, column: 5, scope: !3)
!16 = distinct !{!16, !10}
!17 = distinct !{!17, !10}
