; ModuleID = 'weft'
source_filename = "weft"
target datalayout = "e-p6:32:32-i64:64-i128:128-i256:256-v16:16-v32:32-n16:32:64"
target triple = "nvptx64-nvidia-cuda"

define ptx_kernel void @allreduce_two_shot(ptr addrspace(1) align 16 %0, ptr addrspace(1) align 8 %1, i32 %2, i32 %3, i64 %4, i64 %5, i64 %6) #0 !dbg !3 {
entry:
  %7 = inttoptr i64 %5 to ptr addrspace(1), !dbg !6
  %8 = inttoptr i64 %6 to ptr addrspace(1), !dbg !6
  %9 = inttoptr i64 %4 to ptr addrspace(1), !dbg !7
  %10 = call range(i32 0, 512) i32 @llvm.nvvm.read.ptx.sreg.tid.x(), !dbg !8
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
  %27 = getelementptr i8, ptr addrspace(1) %1, i64 %24, !dbg !7
  %28 = getelementptr i8, ptr addrspace(1) %27, i64 4, !dbg !7
  %29 = load i32, ptr addrspace(1) %28, align 4, !dbg !7
  %30 = add i32 %29, 1, !dbg !7
  %31 = mul i32 %30, %3, !dbg !7
  br label %while, !dbg !7

end:                                              ; preds = %done, %entry
  call void @llvm.nvvm.barrier.cta.sync.aligned.all(i32 0), !dbg !7
  %32 = sext i32 %2 to i64, !dbg !6
  %33 = sext i32 %3 to i64, !dbg !6
  %34 = shl nsw i64 %33, 3, !dbg !6
  %35 = call i64 @llvm.smin.i64(i64 %34, i64 4294967295), !dbg !6
  %36 = trunc i64 %35 to i32, !dbg !6
  %37 = icmp eq i32 %36, 0, !dbg !6
  %38 = call i32 @llvm.umax.i32(i32 %36, i32 1), !dbg !6
  %39 = udiv i32 1002, %38, !dbg !6
  %40 = select i1 %37, i32 -1, i32 %39, !dbg !6
  %41 = zext i32 %40 to i64, !dbg !6
  %42 = add nuw nsw i64 %41, 1, !dbg !6
  %43 = mul i64 %42, %32, !dbg !6
  %44 = shl i64 %43, 3, !dbg !6
  %45 = shl nuw nsw i32 %10, 3, !dbg !6
  %46 = zext nneg i32 %45 to i64, !dbg !6
  %47 = add i64 %44, %46, !dbg !6
  %48 = zext nneg i32 %11 to i64, !dbg !6
  %49 = shl nuw nsw i64 %48, 12, !dbg !6
  %50 = add i64 %47, %49, !dbg !6
  %51 = shl i64 %50, 1, !dbg !6
  %52 = getelementptr i8, ptr addrspace(1) %7, i64 %51, !dbg !6
  %53 = or disjoint i64 %50, 7, !dbg !6
  %54 = icmp slt i64 %53, 1003, !dbg !6
  %55 = shl nuw nsw i64 %42, 3, !dbg !6
  %56 = trunc i64 %55 to i32, !dbg !6
  %57 = icmp eq i32 %56, 0, !dbg !6
  %58 = call i32 @llvm.umax.i32(i32 %56, i32 1), !dbg !6
  %59 = udiv i32 1002, %58, !dbg !6
  %60 = select i1 %57, i32 -1, i32 %59, !dbg !6
  %61 = zext i32 %60 to i64, !dbg !6
  %62 = add nuw nsw i64 %61, 1, !dbg !6
  %63 = icmp sge i64 %61, %32, !dbg !6
  %64 = or disjoint i64 %49, %46, !dbg !6
  %65 = or disjoint i64 %64, 7, !dbg !6
  %66 = icmp samesign ult i64 %65, %55, !dbg !6
  %67 = and i1 %54, %63, !dbg !6
  %68 = and i1 %67, %66, !dbg !6
  br i1 %68, label %then2, label %else, !dbg !6

while:                                            ; preds = %while, %then
  %69 = load atomic i32, ptr addrspace(1) %27 acquire, align 4, !dbg !7
  %70 = sub i32 %69, %31, !dbg !7
  %71 = icmp slt i32 %70, 0, !dbg !7
  br i1 %71, label %while, label %done, !dbg !7, !llvm.loop !9

done:                                             ; preds = %while
  store i32 %30, ptr addrspace(1) %28, align 4, !dbg !7
  br label %end, !dbg !7

then2:                                            ; preds = %end
  %72 = ptrtoint ptr addrspace(1) %52 to i64, !dbg !6
  %73 = call { i32, i32, i32, i32 } asm sideeffect "multimem.ld_reduce.relaxed.sys.global.add.acc::f32.v4.f16x2 {$0, $1, $2, $3}, [$4];", "=r,=r,=r,=r,l,~{memory}"(i64 %72) #4, !dbg !6
  %74 = extractvalue { i32, i32, i32, i32 } %73, 0, !dbg !6
  %75 = extractvalue { i32, i32, i32, i32 } %73, 1, !dbg !6
  %76 = extractvalue { i32, i32, i32, i32 } %73, 2, !dbg !6
  %77 = extractvalue { i32, i32, i32, i32 } %73, 3, !dbg !6
  %78 = insertelement <4 x i32> poison, i32 %74, i64 0, !dbg !6
  %79 = insertelement <4 x i32> %78, i32 %75, i64 1, !dbg !6
  %80 = insertelement <4 x i32> %79, i32 %76, i64 2, !dbg !6
  %81 = insertelement <4 x i32> %80, i32 %77, i64 3, !dbg !6
  %82 = bitcast <4 x i32> %81 to <8 x half>, !dbg !6
  br label %end3, !dbg !6

end3:                                             ; preds = %done9, %done5, %then2
  %.043 = phi <8 x half> [ %82, %then2 ], [ %.142, %done5 ], [ %135, %done9 ], !dbg !6
  br i1 %68, label %then10, label %else12, !dbg !11

else:                                             ; preds = %end
  %83 = sub i64 1003, %50, !dbg !6
  %84 = sub nsw i64 %62, %32, !dbg !6
  %85 = sub nsw i64 %55, %64, !dbg !6
  %86 = shl nsw i64 %84, 3, !dbg !6
  %87 = call i64 @llvm.smin.i64(i64 %83, i64 %86), !dbg !6
  %88 = call i64 @llvm.smin.i64(i64 %87, i64 %85), !dbg !6
  %89 = call i64 @llvm.smax.i64(i64 %88, i64 0), !dbg !6
  %90 = call i64 @llvm.smin.i64(i64 %89, i64 8), !dbg !6
  %91 = lshr i64 %90, 1, !dbg !6
  %92 = trunc nuw nsw i64 %91 to i32, !dbg !6
  %93 = add nsw i32 %92, -1, !dbg !6
  %.not = icmp eq i64 %91, 0, !dbg !6
  br i1 %.not, label %done5, label %for4, !dbg !6

for4:                                             ; preds = %else, %for4
  %.041 = phi <8 x half> [ %102, %for4 ], [ zeroinitializer, %else ], !dbg !6
  %.038 = phi ptr addrspace(1) [ %103, %for4 ], [ %52, %else ], !dbg !6
  %94 = phi i32 [ %105, %for4 ], [ 0, %else ], !dbg !6
  %95 = ptrtoint ptr addrspace(1) %.038 to i64, !dbg !6
  %96 = call i32 asm sideeffect "multimem.ld_reduce.relaxed.sys.global.add.acc::f32.f16x2 $0, [$1];", "=r,l,~{memory}"(i64 %95) #4, !dbg !6
  %97 = bitcast i32 %96 to <2 x half>, !dbg !6
  %98 = shufflevector <2 x half> %97, <2 x half> poison, <8 x i32> <i32 0, i32 1, i32 0, i32 1, i32 0, i32 1, i32 0, i32 1>, !dbg !6
  %99 = insertelement <8 x i32> poison, i32 %94, i64 0, !dbg !6
  %100 = shufflevector <8 x i32> %99, <8 x i32> poison, <8 x i32> zeroinitializer, !dbg !6
  %101 = icmp eq <8 x i32> %100, <i32 0, i32 0, i32 1, i32 1, i32 2, i32 2, i32 3, i32 3>, !dbg !6
  %102 = select <8 x i1> %101, <8 x half> %98, <8 x half> %.041, !dbg !6
  %103 = getelementptr i8, ptr addrspace(1) %.038, i64 4, !dbg !6
  %104 = icmp slt i32 %94, %93, !dbg !6
  %105 = add nuw nsw i32 %94, 1, !dbg !6
  br i1 %104, label %for4, label %done5, !dbg !6, !llvm.loop !12

done5:                                            ; preds = %for4, %else
  %.142 = phi <8 x half> [ zeroinitializer, %else ], [ %102, %for4 ], !dbg !6
  %106 = and i64 %90, 14, !dbg !6
  %107 = trunc nuw nsw i64 %90 to i32, !dbg !6
  %108 = add nsw i32 %107, -1, !dbg !6
  %.not44 = icmp eq i64 %106, %90, !dbg !6
  br i1 %.not44, label %end3, label %for6.preheader, !dbg !6

for6.preheader:                                   ; preds = %done5
  %109 = trunc nuw nsw i64 %106 to i32, !dbg !6
  %110 = add nsw i64 %33, -1
  %111 = icmp sgt i32 %3, 0
  br label %for6, !dbg !6

for6:                                             ; preds = %for6.preheader, %done9
  %.2 = phi <8 x half> [ %135, %done9 ], [ %.142, %for6.preheader ], !dbg !6
  %112 = phi i32 [ %137, %done9 ], [ %109, %for6.preheader ], !dbg !6
  br i1 %111, label %for8.preheader, label %done9, !dbg !6

for8.preheader:                                   ; preds = %for6
  %113 = shl nuw i32 %112, 1
  %114 = zext i32 %113 to i64
  br label %for8, !dbg !6

for8:                                             ; preds = %for8.preheader, %for8
  %.039 = phi float [ %125, %for8 ], [ 0.000000e+00, %for8.preheader ], !dbg !6
  %.037 = phi ptr addrspace(1) [ %126, %for8 ], [ %8, %for8.preheader ], !dbg !6
  %115 = phi i64 [ %128, %for8 ], [ 0, %for8.preheader ], !dbg !6
  %116 = load i64, ptr addrspace(1) %.037, align 8, !dbg !6
  %117 = inttoptr i64 %116 to ptr addrspace(1), !dbg !6
  %118 = getelementptr i8, ptr addrspace(1) %117, i64 %51, !dbg !6
  %119 = getelementptr i8, ptr addrspace(1) %118, i64 %114, !dbg !6
  %120 = load atomic i16, ptr addrspace(1) %119 monotonic, align 2, !dbg !6
  %121 = bitcast i16 %120 to half, !dbg !6
  %122 = icmp eq i64 %115, 0, !dbg !6
  %123 = fpext half %121 to float, !dbg !6
  %124 = fadd float %.039, %123, !dbg !6
  %125 = select i1 %122, float %123, float %124, !dbg !6
  %126 = getelementptr i8, ptr addrspace(1) %.037, i64 8, !dbg !6
  %127 = icmp slt i64 %115, %110, !dbg !6
  %128 = add nuw nsw i64 %115, 1, !dbg !6
  br i1 %127, label %for8, label %done9.loopexit, !dbg !6, !llvm.loop !13

done9.loopexit:                                   ; preds = %for8
  %129 = fptrunc float %125 to half, !dbg !6
  br label %done9, !dbg !6

done9:                                            ; preds = %done9.loopexit, %for6
  %.140 = phi half [ 0xH0000, %for6 ], [ %129, %done9.loopexit ], !dbg !6
  %130 = insertelement <8 x half> poison, half %.140, i64 0, !dbg !6
  %131 = shufflevector <8 x half> %130, <8 x half> poison, <8 x i32> zeroinitializer, !dbg !6
  %132 = insertelement <8 x i32> poison, i32 %112, i64 0, !dbg !6
  %133 = shufflevector <8 x i32> %132, <8 x i32> poison, <8 x i32> zeroinitializer, !dbg !6
  %134 = icmp eq <8 x i32> %133, <i32 0, i32 1, i32 2, i32 3, i32 4, i32 5, i32 6, i32 7>, !dbg !6
  %135 = select <8 x i1> %134, <8 x half> %131, <8 x half> %.2, !dbg !6
  %136 = icmp slt i32 %112, %108, !dbg !6
  %137 = add nuw nsw i32 %112, 1, !dbg !6
  br i1 %136, label %for6, label %end3, !dbg !6, !llvm.loop !14

then10:                                           ; preds = %end3
  %138 = bitcast <8 x half> %.043 to <4 x i32>, !dbg !11
  %139 = extractelement <4 x i32> %138, i64 0, !dbg !11
  %140 = extractelement <4 x i32> %138, i64 1, !dbg !11
  %141 = extractelement <4 x i32> %138, i64 2, !dbg !11
  %142 = extractelement <4 x i32> %138, i64 3, !dbg !11
  %143 = ptrtoint ptr addrspace(1) %52 to i64, !dbg !11
  call void asm sideeffect "multimem.st.relaxed.sys.global.v4.f16x2 [$0], {$1, $2, $3, $4};", "l,r,r,r,r,~{memory}"(i64 %143, i32 %139, i32 %140, i32 %141, i32 %142) #4, !dbg !11
  br label %end11, !dbg !11

end11:                                            ; preds = %done18, %done14, %then10
  call void @llvm.nvvm.barrier.cta.sync.aligned.all(i32 0), !dbg !15
  br i1 %16, label %then19, label %end20, !dbg !15

else12:                                           ; preds = %end3
  %144 = sub i64 1003, %50, !dbg !11
  %145 = sub nsw i64 %62, %32, !dbg !11
  %146 = sub nsw i64 %55, %64, !dbg !11
  %147 = shl nsw i64 %145, 3, !dbg !11
  %148 = call i64 @llvm.smin.i64(i64 %144, i64 %147), !dbg !11
  %149 = call i64 @llvm.smin.i64(i64 %148, i64 %146), !dbg !11
  %150 = call i64 @llvm.smax.i64(i64 %149, i64 0), !dbg !11
  %151 = call i64 @llvm.smin.i64(i64 %150, i64 8), !dbg !11
  %152 = lshr i64 %151, 1, !dbg !11
  %153 = trunc nuw nsw i64 %152 to i32, !dbg !11
  %154 = add nsw i32 %153, -1, !dbg !11
  %.not45 = icmp eq i64 %152, 0, !dbg !11
  br i1 %.not45, label %done14, label %for13.preheader, !dbg !11

for13.preheader:                                  ; preds = %else12
  %155 = shufflevector <8 x half> %.043, <8 x half> poison, <2 x i32> <i32 0, i32 1>
  %156 = shufflevector <8 x half> %.043, <8 x half> poison, <2 x i32> <i32 2, i32 3>
  %157 = shufflevector <8 x half> %.043, <8 x half> poison, <2 x i32> <i32 4, i32 5>
  %158 = shufflevector <8 x half> %.043, <8 x half> poison, <2 x i32> <i32 6, i32 7>
  br label %for13, !dbg !11

for13:                                            ; preds = %for13.preheader, %for13
  %.036 = phi ptr addrspace(1) [ %168, %for13 ], [ %52, %for13.preheader ], !dbg !11
  %159 = phi i32 [ %170, %for13 ], [ 0, %for13.preheader ], !dbg !11
  %160 = icmp eq i32 %159, 1, !dbg !11
  %161 = select i1 %160, <2 x half> %156, <2 x half> %155, !dbg !11
  %162 = icmp eq i32 %159, 2, !dbg !11
  %163 = select i1 %162, <2 x half> %157, <2 x half> %161, !dbg !11
  %164 = icmp eq i32 %159, 3, !dbg !11
  %165 = select i1 %164, <2 x half> %158, <2 x half> %163, !dbg !11
  %166 = bitcast <2 x half> %165 to i32, !dbg !11
  %167 = ptrtoint ptr addrspace(1) %.036 to i64, !dbg !11
  call void asm sideeffect "multimem.st.relaxed.sys.global.f16x2 [$0], $1;", "l,r,~{memory}"(i64 %167, i32 %166) #4, !dbg !11
  %168 = getelementptr i8, ptr addrspace(1) %.036, i64 4, !dbg !11
  %169 = icmp slt i32 %159, %154, !dbg !11
  %170 = add nuw nsw i32 %159, 1, !dbg !11
  br i1 %169, label %for13, label %done14, !dbg !11, !llvm.loop !16

done14:                                           ; preds = %for13, %else12
  %171 = and i64 %151, 14, !dbg !11
  %172 = trunc nuw nsw i64 %151 to i32, !dbg !11
  %173 = add nsw i32 %172, -1, !dbg !11
  %.not46 = icmp eq i64 %171, %151, !dbg !11
  br i1 %.not46, label %end11, label %for15.preheader, !dbg !11

for15.preheader:                                  ; preds = %done14
  %174 = trunc nuw nsw i64 %171 to i32, !dbg !11
  %175 = extractelement <8 x half> %.043, i64 0
  %176 = extractelement <8 x half> %.043, i64 1
  %177 = extractelement <8 x half> %.043, i64 2
  %178 = extractelement <8 x half> %.043, i64 3
  %179 = extractelement <8 x half> %.043, i64 4
  %180 = extractelement <8 x half> %.043, i64 5
  %181 = extractelement <8 x half> %.043, i64 6
  %182 = extractelement <8 x half> %.043, i64 7
  %183 = add nsw i64 %33, -1
  %184 = icmp sgt i32 %3, 0
  br label %for15, !dbg !11

for15:                                            ; preds = %for15.preheader, %done18
  %185 = phi i32 [ %217, %done18 ], [ %174, %for15.preheader ], !dbg !11
  br i1 %184, label %part.preheader, label %done18, !dbg !11

part.preheader:                                   ; preds = %for15
  %186 = icmp eq i32 %185, 7, !dbg !11
  %187 = icmp eq i32 %185, 6, !dbg !11
  %188 = icmp eq i32 %185, 5, !dbg !11
  %189 = icmp eq i32 %185, 4, !dbg !11
  %190 = icmp eq i32 %185, 3, !dbg !11
  %191 = icmp eq i32 %185, 2, !dbg !11
  %192 = icmp eq i32 %185, 1, !dbg !11
  %193 = select i1 %192, half %176, half %175, !dbg !11
  %194 = select i1 %191, half %177, half %193, !dbg !11
  %195 = select i1 %190, half %178, half %194, !dbg !11
  %196 = select i1 %189, half %179, half %195, !dbg !11
  %197 = select i1 %188, half %180, half %196, !dbg !11
  %198 = select i1 %187, half %181, half %197, !dbg !11
  %199 = select i1 %186, half %182, half %198, !dbg !11
  %200 = shl nuw i32 %185, 1
  %201 = zext i32 %200 to i64
  %202 = bitcast half %199 to i16
  br label %part, !dbg !11

part:                                             ; preds = %part.preheader, %next
  %.0 = phi ptr addrspace(1) [ %211, %next ], [ %8, %part.preheader ], !dbg !11
  %203 = phi i64 [ %214, %next ], [ %183, %part.preheader ], !dbg !11
  %204 = call i64 @llvm.umin.i64(i64 %203, i64 1073741824), !dbg !11
  %205 = trunc nuw nsw i64 %204 to i32, !dbg !11
  br label %for17, !dbg !11

for17:                                            ; preds = %for17, %part
  %.1 = phi ptr addrspace(1) [ %.0, %part ], [ %211, %for17 ], !dbg !11
  %206 = phi i32 [ 0, %part ], [ %213, %for17 ], !dbg !11
  %207 = load i64, ptr addrspace(1) %.1, align 8, !dbg !11
  %208 = inttoptr i64 %207 to ptr addrspace(1), !dbg !11
  %209 = getelementptr i8, ptr addrspace(1) %208, i64 %51, !dbg !11
  %210 = getelementptr i8, ptr addrspace(1) %209, i64 %201, !dbg !11
  store atomic i16 %202, ptr addrspace(1) %210 monotonic, align 2, !dbg !11
  %211 = getelementptr i8, ptr addrspace(1) %.1, i64 8, !dbg !11
  %212 = icmp samesign ult i32 %206, %205, !dbg !11
  %213 = add nuw nsw i32 %206, 1, !dbg !11
  br i1 %212, label %for17, label %next, !dbg !11, !llvm.loop !17

next:                                             ; preds = %for17
  %.neg = xor i64 %204, -1, !dbg !11
  %214 = add i64 %203, %.neg, !dbg !11
  %215 = icmp ugt i64 %203, 1073741824, !dbg !11
  br i1 %215, label %part, label %done18, !dbg !11, !llvm.loop !18

done18:                                           ; preds = %next, %for15
  %216 = icmp slt i32 %185, %173, !dbg !11
  %217 = add nuw nsw i32 %185, 1, !dbg !11
  br i1 %216, label %for15, label %end11, !dbg !11, !llvm.loop !19

then19:                                           ; preds = %end11
  %narrow47 = mul nuw i32 %12, %13, !dbg !15
  %218 = zext i32 %narrow47 to i64, !dbg !15
  %219 = zext nneg i32 %15 to i64, !dbg !15
  %220 = zext nneg i32 %14 to i64, !dbg !15
  %221 = add nuw nsw i64 %218, %220, !dbg !15
  %222 = mul nuw i64 %221, %219, !dbg !15
  %223 = add i64 %222, %48, !dbg !15
  %224 = shl i64 %223, 7, !dbg !15
  %225 = getelementptr i8, ptr addrspace(1) %9, i64 %224, !dbg !15
  %226 = ptrtoint ptr addrspace(1) %225 to i64, !dbg !15
  call void asm sideeffect "multimem.red.release.sys.global.add.u32 [$0], $1;", "l,r,~{memory}"(i64 %226, i32 1) #4, !dbg !15
  %227 = getelementptr i8, ptr addrspace(1) %1, i64 %224, !dbg !15
  %228 = getelementptr i8, ptr addrspace(1) %227, i64 4, !dbg !15
  %229 = load i32, ptr addrspace(1) %228, align 4, !dbg !15
  %230 = add i32 %229, 1, !dbg !15
  %231 = mul i32 %230, %3, !dbg !15
  br label %while21, !dbg !15

end20:                                            ; preds = %done23, %end11
  call void @llvm.nvvm.barrier.cta.sync.aligned.all(i32 0), !dbg !15
  ret void, !dbg !15

while21:                                          ; preds = %while21, %then19
  %232 = load atomic i32, ptr addrspace(1) %227 acquire, align 4, !dbg !15
  %233 = sub i32 %232, %231, !dbg !15
  %234 = icmp slt i32 %233, 0, !dbg !15
  br i1 %234, label %while21, label %done23, !dbg !15, !llvm.loop !20

done23:                                           ; preds = %while21
  store i32 %230, ptr addrspace(1) %228, align 4, !dbg !15
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
!7 = !DILocation(line: 11, column: 5, scope: !3)
!8 = !DILocation(line: 9, column: 32, scope: !3)
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
!20 = distinct !{!20, !10}
