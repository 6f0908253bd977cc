; ModuleID = 'weft'
source_filename = "weft"
target datalayout = "e-p6:32:32-i64:64-i128:128-i256:256-v16:16-v32:32-n16:32:64"
target triple = "nvptx64-nvidia-cuda"

define ptx_kernel void @allreduce_two_shot(ptr addrspace(1) align 16 %0, ptr addrspace(1) align 8 %1, i32 %2, i32 %3, i64 %4, i64 %5, i64 %6) #0 !dbg !3 {
entry:
  %7 = inttoptr i64 %5 to ptr addrspace(1), !dbg !6
  %8 = inttoptr i64 %6 to ptr addrspace(1), !dbg !6
  %9 = call range(i32 0, 512) i32 @llvm.nvvm.read.ptx.sreg.tid.x(), !dbg !7
  %10 = call range(i32 0, 2147483647) i32 @llvm.nvvm.read.ptx.sreg.ctaid.x(), !dbg !7
  %11 = call range(i32 0, 65535) i32 @llvm.nvvm.read.ptx.sreg.ctaid.z(), !dbg !8
  %12 = call range(i32 1, 65536) i32 @llvm.nvvm.read.ptx.sreg.nctaid.y(), !dbg !8
  %13 = call range(i32 0, 65535) i32 @llvm.nvvm.read.ptx.sreg.ctaid.y(), !dbg !8
  %14 = call range(i32 1, -2147483648) i32 @llvm.nvvm.read.ptx.sreg.nctaid.x(), !dbg !8
  call void @llvm.nvvm.barrier.cta.sync.aligned.all(i32 0), !dbg !8
  %15 = icmp eq i32 %9, 0, !dbg !8
  br i1 %15, label %then, label %entry.end_crit_edge, !dbg !8

entry.end_crit_edge:                              ; preds = %entry
  %.pre = zext nneg i32 %10 to i64, !dbg !6
  br label %end, !dbg !8

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
  %24 = add i64 %4, %23, !dbg !8
  call void asm sideeffect "multimem.red.release.sys.global.add.u32 [$0], $1;", "l,r,~{memory}"(i64 %24, i32 1) #4, !dbg !8
  %25 = getelementptr i8, ptr addrspace(1) %1, i64 %23, !dbg !8
  %26 = getelementptr i8, ptr addrspace(1) %25, i64 4, !dbg !8
  %27 = load i32, ptr addrspace(1) %26, align 4, !dbg !8
  %28 = add i32 %27, 1, !dbg !8
  %29 = mul i32 %28, %3, !dbg !8
  br label %while, !dbg !8

end:                                              ; preds = %entry.end_crit_edge, %done
  %.pre-phi = phi i64 [ %.pre, %entry.end_crit_edge ], [ %21, %done ], !dbg !6
  call void @llvm.nvvm.barrier.cta.sync.aligned.all(i32 0), !dbg !8
  %30 = sext i32 %2 to i64, !dbg !6
  %31 = sext i32 %3 to i64, !dbg !6
  %32 = shl nsw i64 %31, 3, !dbg !6
  %33 = call i64 @llvm.smin.i64(i64 %32, i64 4294967295), !dbg !6
  %34 = trunc i64 %33 to i32, !dbg !6
  %35 = icmp eq i32 %34, 0, !dbg !6
  %36 = call i32 @llvm.umax.i32(i32 %34, i32 1), !dbg !6
  %37 = udiv i32 1002, %36, !dbg !6
  %38 = select i1 %35, i32 -1, i32 %37, !dbg !6
  %39 = zext i32 %38 to i64, !dbg !6
  %40 = add nuw nsw i64 %39, 1, !dbg !6
  %41 = mul i64 %40, %30, !dbg !6
  %42 = shl i64 %41, 3, !dbg !6
  %43 = shl nuw nsw i32 %9, 3, !dbg !6
  %44 = zext nneg i32 %43 to i64, !dbg !6
  %45 = add i64 %42, %44, !dbg !6
  %46 = shl nuw nsw i64 %.pre-phi, 12, !dbg !6
  %47 = add i64 %45, %46, !dbg !6
  %48 = shl i64 %47, 1, !dbg !6
  %49 = getelementptr i8, ptr addrspace(1) %7, i64 %48, !dbg !6
  %50 = or disjoint i64 %47, 7, !dbg !6
  %51 = icmp slt i64 %50, 1003, !dbg !6
  %52 = shl nuw nsw i64 %40, 3, !dbg !6
  %53 = trunc i64 %52 to i32, !dbg !6
  %54 = icmp eq i32 %53, 0, !dbg !6
  %55 = call i32 @llvm.umax.i32(i32 %53, i32 1), !dbg !6
  %56 = udiv i32 1002, %55, !dbg !6
  %57 = select i1 %54, i32 -1, i32 %56, !dbg !6
  %58 = zext i32 %57 to i64, !dbg !6
  %59 = add nuw nsw i64 %58, 1, !dbg !6
  %60 = icmp sge i64 %58, %30, !dbg !6
  %61 = or disjoint i64 %46, %44, !dbg !6
  %62 = or disjoint i64 %61, 7, !dbg !6
  %63 = icmp samesign ult i64 %62, %52, !dbg !6
  %64 = and i1 %51, %60, !dbg !6
  %65 = and i1 %64, %63, !dbg !6
  br i1 %65, label %then2, label %else, !dbg !6

while:                                            ; preds = %while, %then
  %66 = load atomic i32, ptr addrspace(1) %25 acquire, align 4, !dbg !8
  %67 = sub i32 %66, %29, !dbg !8
  %68 = icmp slt i32 %67, 0, !dbg !8
  br i1 %68, label %while, label %done, !dbg !8, !llvm.loop !9

done:                                             ; preds = %while
  store i32 %28, ptr addrspace(1) %26, align 4, !dbg !8
  br label %end, !dbg !8

then2:                                            ; preds = %end
  %69 = ptrtoint ptr addrspace(1) %49 to i64, !dbg !6
  %70 = call { i32, i32, i32, i32 } asm sideeffect "multimem.ld_reduce.relaxed.sys.global.add.acc::f32.v4.f16x2 {$0, $1, $2, $3}, [$4];", "=r,=r,=r,=r,l,~{memory}"(i64 %69) #4, !dbg !6
  %71 = extractvalue { i32, i32, i32, i32 } %70, 0, !dbg !6
  %72 = extractvalue { i32, i32, i32, i32 } %70, 1, !dbg !6
  %73 = extractvalue { i32, i32, i32, i32 } %70, 2, !dbg !6
  %74 = extractvalue { i32, i32, i32, i32 } %70, 3, !dbg !6
  %75 = insertelement <4 x i32> poison, i32 %71, i64 0, !dbg !6
  %76 = insertelement <4 x i32> %75, i32 %72, i64 1, !dbg !6
  %77 = insertelement <4 x i32> %76, i32 %73, i64 2, !dbg !6
  %78 = insertelement <4 x i32> %77, i32 %74, i64 3, !dbg !6
  %79 = bitcast <4 x i32> %78 to <8 x half>, !dbg !6
  br label %end3, !dbg !6

end3:                                             ; preds = %done9, %done5, %then2
  %.030 = phi <8 x half> [ %79, %then2 ], [ %.129, %done5 ], [ %132, %done9 ], !dbg !6
  br i1 %65, label %then10, label %else12, !dbg !11

else:                                             ; preds = %end
  %80 = sub i64 1003, %47, !dbg !6
  %81 = sub nsw i64 %59, %30, !dbg !6
  %82 = sub nsw i64 %52, %61, !dbg !6
  %83 = shl nsw i64 %81, 3, !dbg !6
  %84 = call i64 @llvm.smin.i64(i64 %80, i64 %83), !dbg !6
  %85 = call i64 @llvm.smin.i64(i64 %84, i64 %82), !dbg !6
  %86 = call i64 @llvm.smax.i64(i64 %85, i64 0), !dbg !6
  %87 = call i64 @llvm.smin.i64(i64 %86, i64 8), !dbg !6
  %88 = lshr i64 %87, 1, !dbg !6
  %89 = add nsw i64 %88, -1, !dbg !6
  %.not = icmp eq i64 %88, 0, !dbg !6
  br i1 %.not, label %done5, label %for4, !dbg !6

for4:                                             ; preds = %else, %for4
  %.028 = phi <8 x half> [ %101, %for4 ], [ zeroinitializer, %else ], !dbg !6
  %90 = phi i64 [ %103, %for4 ], [ 0, %else ], !dbg !6
  %91 = shl i64 %90, 2, !dbg !6
  %92 = getelementptr i8, ptr addrspace(1) %49, i64 %91, !dbg !6
  %93 = ptrtoint ptr addrspace(1) %92 to i64, !dbg !6
  %94 = call i32 asm sideeffect "multimem.ld_reduce.relaxed.sys.global.add.acc::f32.f16x2 $0, [$1];", "=r,l,~{memory}"(i64 %93) #4, !dbg !6
  %95 = bitcast i32 %94 to <2 x half>, !dbg !6
  %96 = shufflevector <2 x half> %95, <2 x half> poison, <8 x i32> <i32 0, i32 1, i32 0, i32 1, i32 0, i32 1, i32 0, i32 1>, !dbg !6
  %97 = trunc i64 %90 to i32, !dbg !6
  %98 = insertelement <8 x i32> poison, i32 %97, i64 0, !dbg !6
  %99 = shufflevector <8 x i32> %98, <8 x i32> poison, <8 x i32> zeroinitializer, !dbg !6
  %100 = icmp eq <8 x i32> %99, <i32 0, i32 0, i32 1, i32 1, i32 2, i32 2, i32 3, i32 3>, !dbg !6
  %101 = select <8 x i1> %100, <8 x half> %96, <8 x half> %.028, !dbg !6
  %102 = icmp slt i64 %90, %89, !dbg !6
  %103 = add nuw nsw i64 %90, 1, !dbg !6
  br i1 %102, label %for4, label %done5, !dbg !6, !llvm.loop !12

done5:                                            ; preds = %for4, %else
  %.129 = phi <8 x half> [ zeroinitializer, %else ], [ %101, %for4 ], !dbg !6
  %104 = and i64 %87, 14, !dbg !6
  %105 = add nsw i64 %87, -1, !dbg !6
  %.not31 = icmp eq i64 %104, %87, !dbg !6
  br i1 %.not31, label %end3, label %for6.preheader, !dbg !6

for6.preheader:                                   ; preds = %done5
  %106 = add nsw i64 %31, -1
  %107 = icmp sgt i32 %3, 0
  br label %for6, !dbg !6

for6:                                             ; preds = %for6.preheader, %done9
  %.2 = phi <8 x half> [ %132, %done9 ], [ %.129, %for6.preheader ], !dbg !6
  %108 = phi i64 [ %134, %done9 ], [ %104, %for6.preheader ], !dbg !6
  br i1 %107, label %for8.preheader, label %done9, !dbg !6

for8.preheader:                                   ; preds = %for6
  %109 = shl nuw i64 %108, 1
  br label %for8, !dbg !6

for8:                                             ; preds = %for8.preheader, %for8
  %.0 = phi float [ %122, %for8 ], [ 0.000000e+00, %for8.preheader ], !dbg !6
  %110 = phi i64 [ %124, %for8 ], [ 0, %for8.preheader ], !dbg !6
  %111 = shl i64 %110, 3, !dbg !6
  %112 = getelementptr i8, ptr addrspace(1) %8, i64 %111, !dbg !6
  %113 = load i64, ptr addrspace(1) %112, align 8, !dbg !6
  %114 = inttoptr i64 %113 to ptr addrspace(1), !dbg !6
  %115 = getelementptr i8, ptr addrspace(1) %114, i64 %48, !dbg !6
  %116 = getelementptr i8, ptr addrspace(1) %115, i64 %109, !dbg !6
  %117 = load atomic i16, ptr addrspace(1) %116 monotonic, align 2, !dbg !6
  %118 = bitcast i16 %117 to half, !dbg !6
  %119 = icmp eq i64 %110, 0, !dbg !6
  %120 = fpext half %118 to float, !dbg !6
  %121 = fadd float %.0, %120, !dbg !6
  %122 = select i1 %119, float %120, float %121, !dbg !6
  %123 = icmp slt i64 %110, %106, !dbg !6
  %124 = add nuw nsw i64 %110, 1, !dbg !6
  br i1 %123, label %for8, label %done9.loopexit, !dbg !6, !llvm.loop !13

done9.loopexit:                                   ; preds = %for8
  %125 = fptrunc float %122 to half, !dbg !6
  br label %done9, !dbg !6

done9:                                            ; preds = %done9.loopexit, %for6
  %.1 = phi half [ 0xH0000, %for6 ], [ %125, %done9.loopexit ], !dbg !6
  %126 = insertelement <8 x half> poison, half %.1, i64 0, !dbg !6
  %127 = shufflevector <8 x half> %126, <8 x half> poison, <8 x i32> zeroinitializer, !dbg !6
  %128 = trunc i64 %108 to i32, !dbg !6
  %129 = insertelement <8 x i32> poison, i32 %128, i64 0, !dbg !6
  %130 = shufflevector <8 x i32> %129, <8 x i32> poison, <8 x i32> zeroinitializer, !dbg !6
  %131 = icmp eq <8 x i32> %130, <i32 0, i32 1, i32 2, i32 3, i32 4, i32 5, i32 6, i32 7>, !dbg !6
  %132 = select <8 x i1> %131, <8 x half> %127, <8 x half> %.2, !dbg !6
  %133 = icmp slt i64 %108, %105, !dbg !6
  %134 = add nuw nsw i64 %108, 1, !dbg !6
  br i1 %133, label %for6, label %end3, !dbg !6, !llvm.loop !14

then10:                                           ; preds = %end3
  %135 = bitcast <8 x half> %.030 to <4 x i32>, !dbg !11
  %136 = extractelement <4 x i32> %135, i64 0, !dbg !11
  %137 = extractelement <4 x i32> %135, i64 1, !dbg !11
  %138 = extractelement <4 x i32> %135, i64 2, !dbg !11
  %139 = extractelement <4 x i32> %135, i64 3, !dbg !11
  %140 = ptrtoint ptr addrspace(1) %49 to i64, !dbg !11
  call void asm sideeffect "multimem.st.relaxed.sys.global.v4.f16x2 [$0], {$1, $2, $3, $4};", "l,r,r,r,r,~{memory}"(i64 %140, i32 %136, i32 %137, i32 %138, i32 %139) #4, !dbg !11
  br label %end11, !dbg !11

end11:                                            ; preds = %done18, %done14, %then10
  call void @llvm.nvvm.barrier.cta.sync.aligned.all(i32 0), !dbg !15
  br i1 %15, label %then19, label %end20, !dbg !15

else12:                                           ; preds = %end3
  %141 = sub i64 1003, %47, !dbg !11
  %142 = sub nsw i64 %59, %30, !dbg !11
  %143 = sub nsw i64 %52, %61, !dbg !11
  %144 = shl nsw i64 %142, 3, !dbg !11
  %145 = call i64 @llvm.smin.i64(i64 %141, i64 %144), !dbg !11
  %146 = call i64 @llvm.smin.i64(i64 %145, i64 %143), !dbg !11
  %147 = call i64 @llvm.smax.i64(i64 %146, i64 0), !dbg !11
  %148 = call i64 @llvm.smin.i64(i64 %147, i64 8), !dbg !11
  %149 = lshr i64 %148, 1, !dbg !11
  %150 = add nsw i64 %149, -1, !dbg !11
  %.not32 = icmp eq i64 %149, 0, !dbg !11
  br i1 %.not32, label %done14, label %for13.preheader, !dbg !11

for13.preheader:                                  ; preds = %else12
  %151 = shufflevector <8 x half> %.030, <8 x half> poison, <2 x i32> <i32 0, i32 1>
  %152 = shufflevector <8 x half> %.030, <8 x half> poison, <2 x i32> <i32 2, i32 3>
  %153 = shufflevector <8 x half> %.030, <8 x half> poison, <2 x i32> <i32 4, i32 5>
  %154 = shufflevector <8 x half> %.030, <8 x half> poison, <2 x i32> <i32 6, i32 7>
  br label %for13, !dbg !11

for13:                                            ; preds = %for13.preheader, %for13
  %155 = phi i64 [ %167, %for13 ], [ 0, %for13.preheader ], !dbg !11
  %156 = icmp eq i64 %155, 1, !dbg !11
  %157 = select i1 %156, <2 x half> %152, <2 x half> %151, !dbg !11
  %158 = icmp eq i64 %155, 2, !dbg !11
  %159 = select i1 %158, <2 x half> %153, <2 x half> %157, !dbg !11
  %160 = icmp eq i64 %155, 3, !dbg !11
  %161 = select i1 %160, <2 x half> %154, <2 x half> %159, !dbg !11
  %162 = shl i64 %155, 2, !dbg !11
  %163 = getelementptr i8, ptr addrspace(1) %49, i64 %162, !dbg !11
  %164 = bitcast <2 x half> %161 to i32, !dbg !11
  %165 = ptrtoint ptr addrspace(1) %163 to i64, !dbg !11
  call void asm sideeffect "multimem.st.relaxed.sys.global.f16x2 [$0], $1;", "l,r,~{memory}"(i64 %165, i32 %164) #4, !dbg !11
  %166 = icmp slt i64 %155, %150, !dbg !11
  %167 = add nuw nsw i64 %155, 1, !dbg !11
  br i1 %166, label %for13, label %done14, !dbg !11, !llvm.loop !16

done14:                                           ; preds = %for13, %else12
  %168 = and i64 %148, 14, !dbg !11
  %169 = add nsw i64 %148, -1, !dbg !11
  %.not33 = icmp eq i64 %168, %148, !dbg !11
  br i1 %.not33, label %end11, label %for15.preheader, !dbg !11

for15.preheader:                                  ; preds = %done14
  %170 = extractelement <8 x half> %.030, i64 0
  %171 = extractelement <8 x half> %.030, i64 1
  %172 = extractelement <8 x half> %.030, i64 2
  %173 = extractelement <8 x half> %.030, i64 3
  %174 = extractelement <8 x half> %.030, i64 4
  %175 = extractelement <8 x half> %.030, i64 5
  %176 = extractelement <8 x half> %.030, i64 6
  %177 = extractelement <8 x half> %.030, i64 7
  %178 = add nsw i64 %31, -1
  %179 = icmp sgt i32 %3, 0
  br label %for15, !dbg !11

for15:                                            ; preds = %for15.preheader, %done18
  %180 = phi i64 [ %207, %done18 ], [ %168, %for15.preheader ], !dbg !11
  br i1 %179, label %for17.preheader, label %done18, !dbg !11

for17.preheader:                                  ; preds = %for15
  %181 = icmp eq i64 %180, 7, !dbg !11
  %182 = icmp eq i64 %180, 6, !dbg !11
  %183 = icmp eq i64 %180, 5, !dbg !11
  %184 = icmp eq i64 %180, 4, !dbg !11
  %185 = icmp eq i64 %180, 3, !dbg !11
  %186 = icmp eq i64 %180, 2, !dbg !11
  %187 = icmp eq i64 %180, 1, !dbg !11
  %188 = select i1 %187, half %171, half %170, !dbg !11
  %189 = select i1 %186, half %172, half %188, !dbg !11
  %190 = select i1 %185, half %173, half %189, !dbg !11
  %191 = select i1 %184, half %174, half %190, !dbg !11
  %192 = select i1 %183, half %175, half %191, !dbg !11
  %193 = select i1 %182, half %176, half %192, !dbg !11
  %194 = select i1 %181, half %177, half %193, !dbg !11
  %195 = shl nuw i64 %180, 1
  %196 = bitcast half %194 to i16
  br label %for17, !dbg !11

for17:                                            ; preds = %for17.preheader, %for17
  %197 = phi i64 [ %205, %for17 ], [ 0, %for17.preheader ], !dbg !11
  %198 = shl i64 %197, 3, !dbg !11
  %199 = getelementptr i8, ptr addrspace(1) %8, i64 %198, !dbg !11
  %200 = load i64, ptr addrspace(1) %199, align 8, !dbg !11
  %201 = inttoptr i64 %200 to ptr addrspace(1), !dbg !11
  %202 = getelementptr i8, ptr addrspace(1) %201, i64 %48, !dbg !11
  %203 = getelementptr i8, ptr addrspace(1) %202, i64 %195, !dbg !11
  store atomic i16 %196, ptr addrspace(1) %203 monotonic, align 2, !dbg !11
  %204 = icmp slt i64 %197, %178, !dbg !11
  %205 = add nuw nsw i64 %197, 1, !dbg !11
  br i1 %204, label %for17, label %done18, !dbg !11, !llvm.loop !17

done18:                                           ; preds = %for17, %for15
  %206 = icmp slt i64 %180, %169, !dbg !11
  %207 = add nuw nsw i64 %180, 1, !dbg !11
  br i1 %206, label %for15, label %end11, !dbg !11, !llvm.loop !18

then19:                                           ; preds = %end11
  %narrow34 = mul nuw i32 %11, %12, !dbg !15
  %208 = zext i32 %narrow34 to i64, !dbg !15
  %209 = zext nneg i32 %14 to i64, !dbg !15
  %210 = zext nneg i32 %13 to i64, !dbg !15
  %211 = add nuw nsw i64 %208, %210, !dbg !15
  %212 = mul nuw i64 %211, %209, !dbg !15
  %213 = add i64 %212, %.pre-phi, !dbg !15
  %214 = shl i64 %213, 7, !dbg !15
  %215 = add i64 %4, %214, !dbg !15
  call void asm sideeffect "multimem.red.release.sys.global.add.u32 [$0], $1;", "l,r,~{memory}"(i64 %215, i32 1) #4, !dbg !15
  %216 = getelementptr i8, ptr addrspace(1) %1, i64 %214, !dbg !15
  %217 = getelementptr i8, ptr addrspace(1) %216, i64 4, !dbg !15
  %218 = load i32, ptr addrspace(1) %217, align 4, !dbg !15
  %219 = add i32 %218, 1, !dbg !15
  %220 = mul i32 %219, %3, !dbg !15
  br label %while21, !dbg !15

end20:                                            ; preds = %done23, %end11
  call void @llvm.nvvm.barrier.cta.sync.aligned.all(i32 0), !dbg !15
  ret void, !dbg !15

while21:                                          ; preds = %while21, %then19
  %221 = load atomic i32, ptr addrspace(1) %216 acquire, align 4, !dbg !15
  %222 = sub i32 %221, %220, !dbg !15
  %223 = icmp slt i32 %222, 0, !dbg !15
  br i1 %223, label %while21, label %done23, !dbg !15, !llvm.loop !19

done23:                                           ; preds = %while21
  store i32 %219, ptr addrspace(1) %217, align 4, !dbg !15
  br label %end20, !dbg !15
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

; Function Attrs: nocallback nocreateundeforpoison nofree nosync nounwind speculatable willreturn memory(none)
declare i32 @llvm.umax.i32(i32, i32) #3

attributes #0 = { "nvvm.reqntid"="512,1,1" }
attributes #1 = { nocallback nofree nosync nounwind speculatable willreturn memory(none) }
attributes #2 = { convergent nocallback nounwind }
attributes #3 = { nocallback nocreateundeforpoison nofree nosync nounwind speculatable willreturn memory(none) }
attributes #4 = { nounwind }

!llvm.module.flags = !{!0}
!llvm.dbg.cu = !{!1}

!0 = !{i32 2, !"Debug Info Version", i32 3}
!1 = distinct !DICompileUnit(language: DW_LANG_C, file: !2, producer: "warpweft", isOptimized: true, runtimeVersion: 0, emissionKind: DebugDirectivesOnly, splitDebugInlining: false)
!2 = !DIFile(filename: "examples/allreduce_two_shot.weft", directory: "")
!3 = distinct !DISubprogram(name: "allreduce_two_shot", linkageName: "allreduce_two_shot", scope: !2, file: !2, line: 4, type: !4, scopeLine: 4, spFlags: DISPFlagDefinition | DISPFlagOptimized, unit: !1)
!4 = !DISubroutineType(types: !5)
!5 = !{}
!6 = !DILocation(line: 13, column: 22, scope: !3)
!7 = !DILocation(line: 9, column: 32, scope: !3)
!8 = !DILocation(line: 11, column: 5, scope: !3)
!9 = distinct !{!9, !10}
!10 = !{!"llvm.loop.unroll.disable"}
!11 = !DILocation(line: 13, column: 9, scope: !3)
!12 = distinct !{!12, !10}
!13 = distinct !{!13, !10}
!14 = distinct !{!14, !10}
!15 = !DILocation(line: 15, column: 5, scope: !3)
!16 = distinct !{!16, !10}
!17 = distinct !{!17, !10}
!18 = distinct !{!18, !10}
!19 = distinct !{!19, !10}
