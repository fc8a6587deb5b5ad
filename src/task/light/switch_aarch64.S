/* The switch between light threads on AArch64 (AAPCS64). */
#if defined(__aarch64__)
    .text
    .globl  light_switch
    .hidden light_switch
    .type   light_switch, %function
    .p2align 4
light_switch:
    .cfi_startproc
    sub     sp, sp, #176
    stp     x19, x20, [sp, #0]
    stp     x21, x22, [sp, #16]
    stp     x23, x24, [sp, #32]
    stp     x25, x26, [sp, #48]
    stp     x27, x28, [sp, #64]
    stp     x29, x30, [sp, #80]
    stp     d8, d9, [sp, #96]
    stp     d10, d11, [sp, #112]
    stp     d12, d13, [sp, #128]
    stp     d14, d15, [sp, #144]
    mrs     x9, fpcr
    str     x9, [sp, #160]
    mov     x10, sp
    str     x10, [x0]
    mov     sp, x1
    ldr     x9, [sp, #160]
    msr     fpcr, x9
    ldp     d14, d15, [sp, #144]
    ldp     d12, d13, [sp, #128]
    ldp     d10, d11, [sp, #112]
    ldp     d8, d9, [sp, #96]
    ldp     x29, x30, [sp, #80]
    ldp     x27, x28, [sp, #64]
    ldp     x25, x26, [sp, #48]
    ldp     x23, x24, [sp, #32]
    ldp     x21, x22, [sp, #16]
    ldp     x19, x20, [sp, #0]
    add     sp, sp, #176
    ret
    .cfi_endproc
    .size   light_switch, .-light_switch

    .globl  light_trampoline
    .hidden light_trampoline
    .type   light_trampoline, %function
    .p2align 4
light_trampoline:
    .cfi_startproc
    .cfi_undefined x30
    mov     x29, xzr
    blr     x19
    brk     #1
    .cfi_endproc
    .size   light_trampoline, .-light_trampoline
#endif
    .section .note.GNU-stack, "", %progbits
