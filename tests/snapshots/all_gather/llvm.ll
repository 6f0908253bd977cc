; ModuleID = 'weft'
source_filename = "weft"
target datalayout = "e-p6:32:32-i64:64-i128:128-i256:256-v16:16-v32:32-n16:32:64"
target triple = "nvptx64-nvidia-cuda"

define ptx_kernel void @all_gather(ptr addrspace(1) align 16 %0, ptr addrspace(1) align 16 %1, ptr addrspace(1) align 8 %2, i32 %3, i32 %4, i64 %5, i64 %6) #0 !dbg !3 {
entry:
  %7 = call range(i32 0, 256) i32 @llvm.nvvm.read.ptx.sreg.tid.x(), !dbg !6
  %8 = call range(i32 0, 2147483647) i32 @llvm.nvvm.read.ptx.sreg.ctaid.x(), !dbg !6
  %9 = call range(i32 0, 65535) i32 @llvm.nvvm.read.ptx.sreg.ctaid.z(), !dbg !7
  %10 = call range(i32 1, 65536) i32 @llvm.nvvm.read.ptx.sreg.nctaid.y(), !dbg !7
  %11 = call range(i32 0, 65535) i32 @llvm.nvvm.read.ptx.sreg.ctaid.y(), !dbg !7
  %12 = call range(i32 1, -2147483648) i32 @llvm.nvvm.read.ptx.sreg.nctaid.x(), !dbg !7
  call void @llvm.nvvm.barrier.cta.sync.aligned.all(i32 0), !dbg !7
  %13 = icmp eq i32 %7, 0, !dbg !7
  br i1 %13, label %then, label %end, !dbg !7

then:                                             ; preds = %entry
  %narrow = mul nuw i32 %9, %10, !dbg !7
  %14 = zext i32 %narrow to i64, !dbg !7
  %15 = zext nneg i32 %12 to i64, !dbg !7
  %16 = zext nneg i32 %11 to i64, !dbg !7
  %17 = add nuw nsw i64 %14, %16, !dbg !7
  %18 = mul nuw i64 %17, %15, !dbg !7
  %19 = zext nneg i32 %8 to i64, !dbg !7
  %20 = add i64 %18, %19, !dbg !7
  %21 = shl i64 %20, 7, !dbg !7
  %22 = add i64 %5, %21, !dbg !7
  call void asm sideeffect "multimem.red.release.sys.global.add.u32 [$0], $1;", "l,r,~{memory}"(i64 %22, i32 1) #4, !dbg !7
  %23 = getelementptr i8, ptr addrspace(1) %2, i64 %21, !dbg !7
  %24 = getelementptr i8, ptr addrspace(1) %23, i64 4, !dbg !7
  %25 = load i32, ptr addrspace(1) %24, align 4, !dbg !7
  %26 = add i32 %25, 1, !dbg !7
  %27 = mul i32 %26, %3, !dbg !7
  br label %while, !dbg !7

end:                                              ; preds = %done, %entry
  call void @llvm.nvvm.barrier.cta.sync.aligned.all(i32 0), !dbg !7
  %28 = shl nuw nsw i32 %7, 3, !dbg !8
  %29 = zext nneg i32 %28 to i64, !dbg !8
  %30 = zext nneg i32 %8 to i64, !dbg !8
  %31 = shl nuw nsw i64 %30, 11, !dbg !8
  %32 = or disjoint i64 %31, %29, !dbg !8
  %33 = icmp samesign ult i64 %32, 1000, !dbg !8
  br i1 %33, label %then2, label %end5, !dbg !8

while:                                            ; preds = %while, %then
  %34 = load atomic i32, ptr addrspace(1) %23 acquire, align 4, !dbg !7
  %35 = sub i32 %34, %27, !dbg !7
  %36 = icmp slt i32 %35, 0, !dbg !7
  br i1 %36, label %while, label %done, !dbg !7, !llvm.loop !9

done:                                             ; preds = %while
  store i32 %26, ptr addrspace(1) %24, align 4, !dbg !7
  br label %end, !dbg !7

then2:                                            ; preds = %end
  %37 = shl nuw nsw i64 %32, 1, !dbg !8
  %38 = getelementptr i8, ptr addrspace(1) %0, i64 %37, !dbg !8
  %39 = load <4 x i32>, ptr addrspace(1) %38, align 16, !dbg !8
  %40 = sext i32 %4 to i64, !dbg !8
  %41 = mul nsw i64 %40, 1000, !dbg !8
  %42 = add nsw i64 %41, %29, !dbg !8
  %43 = shl nsw i64 %42, 1, !dbg !8
  %44 = extractelement <4 x i32> %39, i64 0, !dbg !8
  %45 = extractelement <4 x i32> %39, i64 1, !dbg !8
  %46 = extractelement <4 x i32> %39, i64 2, !dbg !8
  %47 = extractelement <4 x i32> %39, i64 3, !dbg !8
  %48 = add i64 %6, %43, !dbg !8
  call void asm sideeffect "multimem.st.relaxed.sys.global.v4.f16x2 [$0], {$1, $2, $3, $4};", "l,r,r,r,r,~{memory}"(i64 %48, i32 %44, i32 %45, i32 %46, i32 %47) #4, !dbg !8
  br label %end5, !dbg !8

end5:                                             ; preds = %end, %then2
  call void @llvm.nvvm.barrier.cta.sync.aligned.all(i32 0), !dbg !11
  br i1 %13, label %then6, label %end7, !dbg !11

then6:                                            ; preds = %end5
  %narrow11 = mul nuw i32 %9, %10, !dbg !11
  %49 = zext i32 %narrow11 to i64, !dbg !11
  %50 = zext nneg i32 %12 to i64, !dbg !11
  %51 = zext nneg i32 %11 to i64, !dbg !11
  %52 = add nuw nsw i64 %49, %51, !dbg !11
  %53 = mul nuw i64 %52, %50, !dbg !11
  %54 = add i64 %53, %30, !dbg !11
  %55 = shl i64 %54, 7, !dbg !11
  %56 = add i64 %5, %55, !dbg !11
  call void asm sideeffect "multimem.red.release.sys.global.add.u32 [$0], $1;", "l,r,~{memory}"(i64 %56, i32 1) #4, !dbg !11
  %57 = getelementptr i8, ptr addrspace(1) %2, i64 %55, !dbg !11
  %58 = getelementptr i8, ptr addrspace(1) %57, i64 4, !dbg !11
  %59 = load i32, ptr addrspace(1) %58, align 4, !dbg !11
  %60 = add i32 %59, 1, !dbg !11
  %61 = mul i32 %60, %3, !dbg !11
  br label %while8, !dbg !11

end7:                                             ; preds = %done10, %end5
  call void @llvm.nvvm.barrier.cta.sync.aligned.all(i32 0), !dbg !11
  ret void, !dbg !11

while8:                                           ; preds = %while8, %then6
  %62 = load atomic i32, ptr addrspace(1) %57 acquire, align 4, !dbg !11
  %63 = sub i32 %62, %61, !dbg !11
  %64 = icmp slt i32 %63, 0, !dbg !11
  br i1 %64, label %while8, label %done10, !dbg !11, !llvm.loop !12

done10:                                           ; preds = %while8
  store i32 %60, ptr addrspace(1) %58, align 4, !dbg !11
  br label %end7, !dbg !11
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

attributes #0 = { "nvvm.reqntid"="256,1,1" }
attributes #1 = { nocallback nofree nosync nounwind speculatable willreturn memory(none) }
attributes #2 = { convergent nocallback nounwind }
attributes #3 = { nocallback nocreateundeforpoison nofree nosync nounwind speculatable willreturn memory(none) }
attributes #4 = { nounwind }

!llvm.module.flags = !{!0}
!llvm.dbg.cu = !{!1}

!0 = !{i32 2, !"Debug Info Version", i32 3}
!1 = distinct !DICompileUnit(language: DW_LANG_C, file: !2, producer: "warpweft", isOptimized: true, runtimeVersion: 0, emissionKind: DebugDirectivesOnly, splitDebugInlining: false)
!2 = !DIFile(filename: "examples/all_gather.weft", directory: "")
!3 = distinct !DISubprogram(name: "all_gather", linkageName: "all_gather", scope: !2, file: !2, line: 2, type: !4, scopeLine: 2, spFlags: DISPFlagDefinition | DISPFlagOptimized, unit: !1)
!4 = !DISubroutineType(types: !5)
!5 = !{}
!6 = !DILocation(line: 7, column: 32, scope: !3)
!7 = !DILocation(line: 10, column: 5, scope: !3)
!8 = !DILocation(line: 12, column: 9, scope: !3)
!9 = distinct !{!9, !10}
!10 = !{!"llvm.loop.unroll.disable"}
!11 = !DILocation(line: 14, column: 5, scope: !3)
!12 = distinct !{!12, !10}
