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
  %24 = add i64 %4, %23, !dbg !8
  call void asm sideeffect "multimem.red.release.sys.global.add.u32 [$0], $1;", "l,r,~{memory}"(i64 %24, i32 1) #4, !dbg !8
  %25 = getelementptr i8, ptr addrspace(1) %1, i64 %23, !dbg !8
  %26 = getelementptr i8, ptr addrspace(1) %25, i64 4, !dbg !8
  %27 = load i32, ptr addrspace(1) %26, align 4, !dbg !8
  %28 = add i32 %27, 1, !dbg !8
  %29 = mul i32 %28, %3, !dbg !8
  br label %while, !dbg !8

end:                                              ; preds = %done, %entry
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
  %46 = zext nneg i32 %10 to i64, !dbg !6
  %47 = shl nuw nsw i64 %46, 12, !dbg !6
  %48 = add i64 %45, %47, !dbg !6
  %49 = shl i64 %48, 1, !dbg !6
  %50 = getelementptr i8, ptr addrspace(1) %7, i64 %49, !dbg !6
  %51 = or disjoint i64 %48, 7, !dbg !6
  %52 = icmp slt i64 %51, 1003, !dbg !6
  %53 = shl nuw nsw i64 %40, 3, !dbg !6
  %54 = trunc i64 %53 to i32, !dbg !6
  %55 = icmp eq i32 %54, 0, !dbg !6
  %56 = call i32 @llvm.umax.i32(i32 %54, i32 1), !dbg !6
  %57 = udiv i32 1002, %56, !dbg !6
  %58 = select i1 %55, i32 -1, i32 %57, !dbg !6
  %59 = zext i32 %58 to i64, !dbg !6
  %60 = add nuw nsw i64 %59, 1, !dbg !6
  %61 = icmp sge i64 %59, %30, !dbg !6
  %62 = or disjoint i64 %47, %44, !dbg !6
  %63 = or disjoint i64 %62, 7, !dbg !6
  %64 = icmp samesign ult i64 %63, %53, !dbg !6
  %65 = and i1 %52, %61, !dbg !6
  %66 = and i1 %65, %64, !dbg !6
  br i1 %66, label %then2, label %else, !dbg !6

while:                                            ; preds = %while, %then
  %67 = load atomic i32, ptr addrspace(1) %25 acquire, align 4, !dbg !8
  %68 = sub i32 %67, %29, !dbg !8
  %69 = icmp slt i32 %68, 0, !dbg !8
  br i1 %69, label %while, label %done, !dbg !8, !llvm.loop !9

done:                                             ; preds = %while
  store i32 %28, ptr addrspace(1) %26, align 4, !dbg !8
  br label %end, !dbg !8

then2:                                            ; preds = %end
  %70 = ptrtoint ptr addrspace(1) %50 to i64, !dbg !6
  %71 = call { i32, i32, i32, i32 } asm sideeffect "multimem.ld_reduce.relaxed.sys.global.add.acc::f32.v4.f16x2 {$0, $1, $2, $3}, [$4];", "=r,=r,=r,=r,l,~{memory}"(i64 %70) #4, !dbg !6
  %72 = extractvalue { i32, i32, i32, i32 } %71, 0, !dbg !6
  %73 = extractvalue { i32, i32, i32, i32 } %71, 1, !dbg !6
  %74 = extractvalue { i32, i32, i32, i32 } %71, 2, !dbg !6
  %75 = extractvalue { i32, i32, i32, i32 } %71, 3, !dbg !6
  %76 = insertelement <4 x i32> poison, i32 %72, i64 0, !dbg !6
  %77 = insertelement <4 x i32> %76, i32 %73, i64 1, !dbg !6
  %78 = insertelement <4 x i32> %77, i32 %74, i64 2, !dbg !6
  %79 = insertelement <4 x i32> %78, i32 %75, i64 3, !dbg !6
  %80 = bitcast <4 x i32> %79 to <8 x half>, !dbg !6
  br label %end3, !dbg !6

end3:                                             ; preds = %done9, %done5, %then2
  %.030 = phi <8 x half> [ %80, %then2 ], [ %.129, %done5 ], [ %133, %done9 ], !dbg !6
  br i1 %66, label %then10, label %else12, !dbg !11

else:                                             ; preds = %end
  %81 = sub i64 1003, %48, !dbg !6
  %82 = sub nsw i64 %60, %30, !dbg !6
  %83 = sub nsw i64 %53, %62, !dbg !6
  %84 = shl nsw i64 %82, 3, !dbg !6
  %85 = call i64 @llvm.smin.i64(i64 %81, i64 %84), !dbg !6
  %86 = call i64 @llvm.smin.i64(i64 %85, i64 %83), !dbg !6
  %87 = call i64 @llvm.smax.i64(i64 %86, i64 0), !dbg !6
  %88 = call i64 @llvm.smin.i64(i64 %87, i64 8), !dbg !6
  %89 = lshr i64 %88, 1, !dbg !6
  %90 = add nsw i64 %89, -1, !dbg !6
  %.not = icmp eq i64 %89, 0, !dbg !6
  br i1 %.not, label %done5, label %for4, !dbg !6

for4:                                             ; preds = %else, %for4
  %.028 = phi <8 x half> [ %102, %for4 ], [ zeroinitializer, %else ], !dbg !6
  %91 = phi i64 [ %104, %for4 ], [ 0, %else ], !dbg !6
  %92 = shl i64 %91, 2, !dbg !6
  %93 = getelementptr i8, ptr addrspace(1) %50, i64 %92, !dbg !6
  %94 = ptrtoint ptr addrspace(1) %93 to i64, !dbg !6
  %95 = call i32 asm sideeffect "multimem.ld_reduce.relaxed.sys.global.add.acc::f32.f16x2 $0, [$1];", "=r,l,~{memory}"(i64 %94) #4, !dbg !6
  %96 = bitcast i32 %95 to <2 x half>, !dbg !6
  %97 = shufflevector <2 x half> %96, <2 x half> poison, <8 x i32> <i32 0, i32 1, i32 0, i32 1, i32 0, i32 1, i32 0, i32 1>, !dbg !6
  %98 = trunc i64 %91 to i32, !dbg !6
  %99 = insertelement <8 x i32> poison, i32 %98, i64 0, !dbg !6
  %100 = shufflevector <8 x i32> %99, <8 x i32> poison, <8 x i32> zeroinitializer, !dbg !6
  %101 = icmp eq <8 x i32> %100, <i32 0, i32 0, i32 1, i32 1, i32 2, i32 2, i32 3, i32 3>, !dbg !6
  %102 = select <8 x i1> %101, <8 x half> %97, <8 x half> %.028, !dbg !6
  %103 = icmp slt i64 %91, %90, !dbg !6
  %104 = add nuw nsw i64 %91, 1, !dbg !6
  br i1 %103, label %for4, label %done5, !dbg !6, !llvm.loop !12

done5:                                            ; preds = %for4, %else
  %.129 = phi <8 x half> [ zeroinitializer, %else ], [ %102, %for4 ], !dbg !6
  %105 = and i64 %88, 14, !dbg !6
  %106 = add nsw i64 %88, -1, !dbg !6
  %.not31 = icmp eq i64 %105, %88, !dbg !6
  br i1 %.not31, label %end3, label %for6.preheader, !dbg !6

for6.preheader:                                   ; preds = %done5
  %107 = add nsw i64 %31, -1
  %108 = icmp sgt i32 %3, 0
  br label %for6, !dbg !6

for6:                                             ; preds = %for6.preheader, %done9
  %.2 = phi <8 x half> [ %133, %done9 ], [ %.129, %for6.preheader ], !dbg !6
  %109 = phi i64 [ %135, %done9 ], [ %105, %for6.preheader ], !dbg !6
  br i1 %108, label %for8.preheader, label %done9, !dbg !6

for8.preheader:                                   ; preds = %for6
  %110 = shl nuw i64 %109, 1
  br label %for8, !dbg !6

for8:                                             ; preds = %for8.preheader, %for8
  %.0 = phi float [ %123, %for8 ], [ 0.000000e+00, %for8.preheader ], !dbg !6
  %111 = phi i64 [ %125, %for8 ], [ 0, %for8.preheader ], !dbg !6
  %112 = shl i64 %111, 3, !dbg !6
  %113 = getelementptr i8, ptr addrspace(1) %8, i64 %112, !dbg !6
  %114 = load i64, ptr addrspace(1) %113, align 8, !dbg !6
  %115 = inttoptr i64 %114 to ptr addrspace(1), !dbg !6
  %116 = getelementptr i8, ptr addrspace(1) %115, i64 %49, !dbg !6
  %117 = getelementptr i8, ptr addrspace(1) %116, i64 %110, !dbg !6
  %118 = load atomic i16, ptr addrspace(1) %117 monotonic, align 2, !dbg !6
  %119 = bitcast i16 %118 to half, !dbg !6
  %120 = icmp eq i64 %111, 0, !dbg !6
  %121 = fpext half %119 to float, !dbg !6
  %122 = fadd float %.0, %121, !dbg !6
  %123 = select i1 %120, float %121, float %122, !dbg !6
  %124 = icmp slt i64 %111, %107, !dbg !6
  %125 = add nuw nsw i64 %111, 1, !dbg !6
  br i1 %124, label %for8, label %done9.loopexit, !dbg !6, !llvm.loop !13

done9.loopexit:                                   ; preds = %for8
  %126 = fptrunc float %123 to half, !dbg !6
  br label %done9, !dbg !6

done9:                                            ; preds = %done9.loopexit, %for6
  %.1 = phi half [ 0xH0000, %for6 ], [ %126, %done9.loopexit ], !dbg !6
  %127 = insertelement <8 x half> poison, half %.1, i64 0, !dbg !6
  %128 = shufflevector <8 x half> %127, <8 x half> poison, <8 x i32> zeroinitializer, !dbg !6
  %129 = trunc i64 %109 to i32, !dbg !6
  %130 = insertelement <8 x i32> poison, i32 %129, i64 0, !dbg !6
  %131 = shufflevector <8 x i32> %130, <8 x i32> poison, <8 x i32> zeroinitializer, !dbg !6
  %132 = icmp eq <8 x i32> %131, <i32 0, i32 1, i32 2, i32 3, i32 4, i32 5, i32 6, i32 7>, !dbg !6
  %133 = select <8 x i1> %132, <8 x half> %128, <8 x half> %.2, !dbg !6
  %134 = icmp slt i64 %109, %106, !dbg !6
  %135 = add nuw nsw i64 %109, 1, !dbg !6
  br i1 %134, label %for6, label %end3, !dbg !6, !llvm.loop !14

then10:                                           ; preds = %end3
  %136 = bitcast <8 x half> %.030 to <4 x i32>, !dbg !11
  %137 = extractelement <4 x i32> %136, i64 0, !dbg !11
  %138 = extractelement <4 x i32> %136, i64 1, !dbg !11
  %139 = extractelement <4 x i32> %136, i64 2, !dbg !11
  %140 = extractelement <4 x i32> %136, i64 3, !dbg !11
  %141 = ptrtoint ptr addrspace(1) %50 to i64, !dbg !11
  call void asm sideeffect "multimem.st.relaxed.sys.global.v4.f16x2 [$0], {$1, $2, $3, $4};", "l,r,r,r,r,~{memory}"(i64 %141, i32 %137, i32 %138, i32 %139, i32 %140) #4, !dbg !11
  br label %end11, !dbg !11

end11:                                            ; preds = %done18, %done14, %then10
  call void @llvm.nvvm.barrier.cta.sync.aligned.all(i32 0), !dbg !15
  br i1 %15, label %then19, label %end20, !dbg !15

else12:                                           ; preds = %end3
  %142 = sub i64 1003, %48, !dbg !11
  %143 = sub nsw i64 %60, %30, !dbg !11
  %144 = sub nsw i64 %53, %62, !dbg !11
  %145 = shl nsw i64 %143, 3, !dbg !11
  %146 = call i64 @llvm.smin.i64(i64 %142, i64 %145), !dbg !11
  %147 = call i64 @llvm.smin.i64(i64 %146, i64 %144), !dbg !11
  %148 = call i64 @llvm.smax.i64(i64 %147, i64 0), !dbg !11
  %149 = call i64 @llvm.smin.i64(i64 %148, i64 8), !dbg !11
  %150 = lshr i64 %149, 1, !dbg !11
  %151 = add nsw i64 %150, -1, !dbg !11
  %.not32 = icmp eq i64 %150, 0, !dbg !11
  br i1 %.not32, label %done14, label %for13.preheader, !dbg !11

for13.preheader:                                  ; preds = %else12
  %152 = shufflevector <8 x half> %.030, <8 x half> poison, <2 x i32> <i32 0, i32 1>
  %153 = shufflevector <8 x half> %.030, <8 x half> poison, <2 x i32> <i32 2, i32 3>
  %154 = shufflevector <8 x half> %.030, <8 x half> poison, <2 x i32> <i32 4, i32 5>
  %155 = shufflevector <8 x half> %.030, <8 x half> poison, <2 x i32> <i32 6, i32 7>
  br label %for13, !dbg !11

for13:                                            ; preds = %for13.preheader, %for13
  %156 = phi i64 [ %168, %for13 ], [ 0, %for13.preheader ], !dbg !11
  %157 = icmp eq i64 %156, 1, !dbg !11
  %158 = select i1 %157, <2 x half> %153, <2 x half> %152, !dbg !11
  %159 = icmp eq i64 %156, 2, !dbg !11
  %160 = select i1 %159, <2 x half> %154, <2 x half> %158, !dbg !11
  %161 = icmp eq i64 %156, 3, !dbg !11
  %162 = select i1 %161, <2 x half> %155, <2 x half> %160, !dbg !11
  %163 = shl i64 %156, 2, !dbg !11
  %164 = getelementptr i8, ptr addrspace(1) %50, i64 %163, !dbg !11
  %165 = bitcast <2 x half> %162 to i32, !dbg !11
  %166 = ptrtoint ptr addrspace(1) %164 to i64, !dbg !11
  call void asm sideeffect "multimem.st.relaxed.sys.global.f16x2 [$0], $1;", "l,r,~{memory}"(i64 %166, i32 %165) #4, !dbg !11
  %167 = icmp slt i64 %156, %151, !dbg !11
  %168 = add nuw nsw i64 %156, 1, !dbg !11
  br i1 %167, label %for13, label %done14, !dbg !11, !llvm.loop !16

done14:                                           ; preds = %for13, %else12
  %169 = and i64 %149, 14, !dbg !11
  %170 = add nsw i64 %149, -1, !dbg !11
  %.not33 = icmp eq i64 %169, %149, !dbg !11
  br i1 %.not33, label %end11, label %for15.preheader, !dbg !11

for15.preheader:                                  ; preds = %done14
  %171 = extractelement <8 x half> %.030, i64 0
  %172 = extractelement <8 x half> %.030, i64 1
  %173 = extractelement <8 x half> %.030, i64 2
  %174 = extractelement <8 x half> %.030, i64 3
  %175 = extractelement <8 x half> %.030, i64 4
  %176 = extractelement <8 x half> %.030, i64 5
  %177 = extractelement <8 x half> %.030, i64 6
  %178 = extractelement <8 x half> %.030, i64 7
  %179 = add nsw i64 %31, -1
  %180 = icmp sgt i32 %3, 0
  br label %for15, !dbg !11

for15:                                            ; preds = %for15.preheader, %done18
  %181 = phi i64 [ %208, %done18 ], [ %169, %for15.preheader ], !dbg !11
  br i1 %180, label %for17.preheader, label %done18, !dbg !11

for17.preheader:                                  ; preds = %for15
  %182 = icmp eq i64 %181, 7, !dbg !11
  %183 = icmp eq i64 %181, 6, !dbg !11
  %184 = icmp eq i64 %181, 5, !dbg !11
  %185 = icmp eq i64 %181, 4, !dbg !11
  %186 = icmp eq i64 %181, 3, !dbg !11
  %187 = icmp eq i64 %181, 2, !dbg !11
  %188 = icmp eq i64 %181, 1, !dbg !11
  %189 = select i1 %188, half %172, half %171, !dbg !11
  %190 = select i1 %187, half %173, half %189, !dbg !11
  %191 = select i1 %186, half %174, half %190, !dbg !11
  %192 = select i1 %185, half %175, half %191, !dbg !11
  %193 = select i1 %184, half %176, half %192, !dbg !11
  %194 = select i1 %183, half %177, half %193, !dbg !11
  %195 = select i1 %182, half %178, half %194, !dbg !11
  %196 = shl nuw i64 %181, 1
  %197 = bitcast half %195 to i16
  br label %for17, !dbg !11

for17:                                            ; preds = %for17.preheader, %for17
  %198 = phi i64 [ %206, %for17 ], [ 0, %for17.preheader ], !dbg !11
  %199 = shl i64 %198, 3, !dbg !11
  %200 = getelementptr i8, ptr addrspace(1) %8, i64 %199, !dbg !11
  %201 = load i64, ptr addrspace(1) %200, align 8, !dbg !11
  %202 = inttoptr i64 %201 to ptr addrspace(1), !dbg !11
  %203 = getelementptr i8, ptr addrspace(1) %202, i64 %49, !dbg !11
  %204 = getelementptr i8, ptr addrspace(1) %203, i64 %196, !dbg !11
  store atomic i16 %197, ptr addrspace(1) %204 monotonic, align 2, !dbg !11
  %205 = icmp slt i64 %198, %179, !dbg !11
  %206 = add nuw nsw i64 %198, 1, !dbg !11
  br i1 %205, label %for17, label %done18, !dbg !11, !llvm.loop !17

done18:                                           ; preds = %for17, %for15
  %207 = icmp slt i64 %181, %170, !dbg !11
  %208 = add nuw nsw i64 %181, 1, !dbg !11
  br i1 %207, label %for15, label %end11, !dbg !11, !llvm.loop !18

then19:                                           ; preds = %end11
  %narrow34 = mul nuw i32 %11, %12, !dbg !15
  %209 = zext i32 %narrow34 to i64, !dbg !15
  %210 = zext nneg i32 %14 to i64, !dbg !15
  %211 = zext nneg i32 %13 to i64, !dbg !15
  %212 = add nuw nsw i64 %209, %211, !dbg !15
  %213 = mul nuw i64 %212, %210, !dbg !15
  %214 = add i64 %213, %46, !dbg !15
  %215 = shl i64 %214, 7, !dbg !15
  %216 = add i64 %4, %215, !dbg !15
  call void asm sideeffect "multimem.red.release.sys.global.add.u32 [$0], $1;", "l,r,~{memory}"(i64 %216, i32 1) #4, !dbg !15
  %217 = getelementptr i8, ptr addrspace(1) %1, i64 %215, !dbg !15
  %218 = getelementptr i8, ptr addrspace(1) %217, i64 4, !dbg !15
  %219 = load i32, ptr addrspace(1) %218, align 4, !dbg !15
  %220 = add i32 %219, 1, !dbg !15
  %221 = mul i32 %220, %3, !dbg !15
  br label %while21, !dbg !15

end20:                                            ; preds = %done23, %end11
  call void @llvm.nvvm.barrier.cta.sync.aligned.all(i32 0), !dbg !15
  ret void, !dbg !15

while21:                                          ; preds = %while21, %then19
  %222 = load atomic i32, ptr addrspace(1) %217 acquire, align 4, !dbg !15
  %223 = sub i32 %222, %221, !dbg !15
  %224 = icmp slt i32 %223, 0, !dbg !15
  br i1 %224, label %while21, label %done23, !dbg !15, !llvm.loop !19

done23:                                           ; preds = %while21
  store i32 %220, ptr addrspace(1) %218, align 4, !dbg !15
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
