; ModuleID = 'weft'
source_filename = "weft"
target datalayout = "e-p6:32:32-i64:64-i128:128-i256:256-v16:16-v32:32-n16:32:64"
target triple = "nvptx64-nvidia-cuda"

define ptx_kernel void @reduce_scatter(ptr addrspace(1) align 16 %0, ptr addrspace(1) align 16 %1, ptr addrspace(1) align 8 %2, i32 %3, i32 %4, i64 %5, i64 %6) #0 !dbg !3 {
entry:
  %7 = inttoptr i64 %5 to ptr addrspace(1), !dbg !6
  %8 = call range(i32 0, 256) i32 @llvm.nvvm.read.ptx.sreg.tid.x(), !dbg !7
  %9 = call range(i32 0, 2147483647) i32 @llvm.nvvm.read.ptx.sreg.ctaid.x(), !dbg !7
  %10 = call range(i32 0, 65535) i32 @llvm.nvvm.read.ptx.sreg.ctaid.z(), !dbg !6
  %11 = call range(i32 1, 65536) i32 @llvm.nvvm.read.ptx.sreg.nctaid.y(), !dbg !6
  %12 = call range(i32 0, 65535) i32 @llvm.nvvm.read.ptx.sreg.ctaid.y(), !dbg !6
  %13 = call range(i32 1, -2147483648) i32 @llvm.nvvm.read.ptx.sreg.nctaid.x(), !dbg !6
  call void @llvm.nvvm.barrier.cta.sync.aligned.all(i32 0), !dbg !6
  %14 = icmp eq i32 %8, 0, !dbg !6
  br i1 %14, label %then, label %end, !dbg !6

then:                                             ; preds = %entry
  %narrow = mul nuw i32 %10, %11, !dbg !6
  %15 = zext i32 %narrow to i64, !dbg !6
  %16 = zext nneg i32 %13 to i64, !dbg !6
  %17 = zext nneg i32 %12 to i64, !dbg !6
  %18 = add nuw nsw i64 %15, %17, !dbg !6
  %19 = mul nuw i64 %18, %16, !dbg !6
  %20 = zext nneg i32 %9 to i64, !dbg !6
  %21 = add i64 %19, %20, !dbg !6
  %22 = shl i64 %21, 7, !dbg !6
  %23 = getelementptr i8, ptr addrspace(1) %7, i64 %22, !dbg !6
  %24 = ptrtoint ptr addrspace(1) %23 to i64, !dbg !6
  call void asm sideeffect "multimem.red.release.sys.global.add.u32 [$0], $1;", "l,r,~{memory}"(i64 %24, i32 1) #4, !dbg !6
  %25 = getelementptr i8, ptr addrspace(1) %2, i64 %22, !dbg !6
  %26 = getelementptr i8, ptr addrspace(1) %25, i64 4, !dbg !6
  %27 = load i32, ptr addrspace(1) %26, align 4, !dbg !6
  %28 = add i32 %27, 1, !dbg !6
  %29 = mul i32 %28, %3, !dbg !6
  br label %while, !dbg !6

end:                                              ; preds = %done, %entry
  call void @llvm.nvvm.barrier.cta.sync.aligned.all(i32 0), !dbg !6
  %30 = shl nuw nsw i32 %8, 3, !dbg !8
  %31 = zext nneg i32 %30 to i64, !dbg !8
  %32 = zext nneg i32 %9 to i64, !dbg !8
  %33 = shl nuw nsw i64 %32, 11, !dbg !8
  %34 = or disjoint i64 %33, %31, !dbg !8
  %35 = icmp samesign ult i64 %34, 1000, !dbg !8
  br i1 %35, label %then2, label %end5, !dbg !8

while:                                            ; preds = %while, %then
  %36 = load atomic i32, ptr addrspace(1) %25 acquire, align 4, !dbg !6
  %37 = sub i32 %36, %29, !dbg !6
  %38 = icmp slt i32 %37, 0, !dbg !6
  br i1 %38, label %while, label %done, !dbg !6, !llvm.loop !9

done:                                             ; preds = %while
  store i32 %28, ptr addrspace(1) %26, align 4, !dbg !6
  br label %end, !dbg !6

then2:                                            ; preds = %end
  %39 = sext i32 %4 to i64, !dbg !8
  %40 = mul nsw i64 %39, 1000, !dbg !8
  %41 = add nsw i64 %40, %31, !dbg !8
  %42 = shl nsw i64 %41, 1, !dbg !8
  %43 = add i64 %6, %42, !dbg !8
  %44 = call { i32, i32, i32, i32 } asm sideeffect "multimem.ld_reduce.relaxed.sys.global.add.acc::f32.v4.f16x2 {$0, $1, $2, $3}, [$4];", "=r,=r,=r,=r,l,~{memory}"(i64 %43) #4, !dbg !8
  %45 = extractvalue { i32, i32, i32, i32 } %44, 0, !dbg !8
  %46 = extractvalue { i32, i32, i32, i32 } %44, 1, !dbg !8
  %47 = extractvalue { i32, i32, i32, i32 } %44, 2, !dbg !8
  %48 = extractvalue { i32, i32, i32, i32 } %44, 3, !dbg !8
  %49 = insertelement <4 x i32> poison, i32 %45, i64 0, !dbg !8
  %50 = insertelement <4 x i32> %49, i32 %46, i64 1, !dbg !8
  %51 = insertelement <4 x i32> %50, i32 %47, i64 2, !dbg !8
  %52 = insertelement <4 x i32> %51, i32 %48, i64 3, !dbg !8
  %53 = call i64 asm "mul.wide.u32 $0, $1, 2;", "=l,r"(i32 %30), !dbg !11
  %54 = getelementptr i8, ptr addrspace(1) %1, i64 %53, !dbg !11
  store <4 x i32> %52, ptr addrspace(1) %54, align 16, !dbg !11
  br label %end5, !dbg !11

end5:                                             ; preds = %end, %then2
  call void @llvm.nvvm.barrier.cta.sync.aligned.all(i32 0), !dbg !12
  br i1 %14, label %then6, label %end7, !dbg !12

then6:                                            ; preds = %end5
  %narrow11 = mul nuw i32 %10, %11, !dbg !12
  %55 = zext i32 %narrow11 to i64, !dbg !12
  %56 = zext nneg i32 %13 to i64, !dbg !12
  %57 = zext nneg i32 %12 to i64, !dbg !12
  %58 = add nuw nsw i64 %55, %57, !dbg !12
  %59 = mul nuw i64 %58, %56, !dbg !12
  %60 = add i64 %59, %32, !dbg !12
  %61 = shl i64 %60, 7, !dbg !12
  %62 = getelementptr i8, ptr addrspace(1) %7, i64 %61, !dbg !12
  %63 = ptrtoint ptr addrspace(1) %62 to i64, !dbg !12
  call void asm sideeffect "multimem.red.release.sys.global.add.u32 [$0], $1;", "l,r,~{memory}"(i64 %63, i32 1) #4, !dbg !12
  %64 = getelementptr i8, ptr addrspace(1) %2, i64 %61, !dbg !12
  %65 = getelementptr i8, ptr addrspace(1) %64, i64 4, !dbg !12
  %66 = load i32, ptr addrspace(1) %65, align 4, !dbg !12
  %67 = add i32 %66, 1, !dbg !12
  %68 = mul i32 %67, %3, !dbg !12
  br label %while8, !dbg !12

end7:                                             ; preds = %done10, %end5
  call void @llvm.nvvm.barrier.cta.sync.aligned.all(i32 0), !dbg !12
  ret void, !dbg !12

while8:                                           ; preds = %while8, %then6
  %69 = load atomic i32, ptr addrspace(1) %64 acquire, align 4, !dbg !12
  %70 = sub i32 %69, %68, !dbg !12
  %71 = icmp slt i32 %70, 0, !dbg !12
  br i1 %71, label %while8, label %done10, !dbg !12, !llvm.loop !13

done10:                                           ; preds = %while8
  store i32 %67, ptr addrspace(1) %65, align 4, !dbg !12
  br label %end7, !dbg !12
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

attributes #0 = { "nvvm.reqntid"="256,1,1" }
attributes #1 = { nocallback nofree nosync nounwind speculatable willreturn memory(none) }
attributes #2 = { convergent nocallback nounwind }
attributes #3 = { nocallback nocreateundeforpoison nofree nosync nounwind speculatable willreturn memory(none) }
attributes #4 = { nounwind }

!llvm.module.flags = !{!0}
!llvm.dbg.cu = !{!1}

!0 = !{i32 2, !"Debug Info Version", i32 3}
!1 = distinct !DICompileUnit(language: DW_LANG_C, file: !2, producer: "warpweft", isOptimized: true, runtimeVersion: 0, emissionKind: DebugDirectivesOnly, splitDebugInlining: false)
!2 = !DIFile(filename: "examples/reduce_scatter.weft", directory: "")
!3 = distinct !DISubprogram(name: "reduce_scatter", linkageName: "reduce_scatter", scope: !2, file: !2, line: 2, type: !4, scopeLine: 2, spFlags: DISPFlagDefinition | DISPFlagOptimized, unit: !1)
!4 = !DISubroutineType(types: !5)
!5 = !{}
!6 = !DILocation(line: 10, column: 5, scope: !3)
!7 = !DILocation(line: 7, column: 32, scope: !3)
!8 = !DILocation(line: 12, column: 20, scope: !3)
!9 = distinct !{!9, !10}
!10 = !{!"llvm.loop.unroll.disable"}
!11 = !DILocation(line: 12, column: 9, scope: !3)
!12 = !DILocation(line: 14, column: 5, scope: !3)
!13 = distinct !{!13, !10}
