/*
 * The switch between light threads on x86-64 (System V calling convention).
 *
 * Without a .note.gnu.property section: the linker then does not mark the library as fit for shadow
 * stacks, which this does not keep.
 */
#if defined(__x86_64__)
    .text
    .globl  light_switch
    .hidden light_switch
    .type   light_switch, @function
    .p2align 4
light_switch:
    .cfi_startproc
    endbr64
    pushq   %rbp
    pushq   %rbx
    pushq   %r12
    pushq   %r13
    pushq   %r14
    pushq   %r15
    subq    $8, %rsp
    stmxcsr (%rsp)
    fnstcw  4(%rsp)
    movl    (%rsp), %eax
    movzwl  4(%rsp), %ecx
    movq    %rsp, (%rdi)
    movq    %rsi, %rsp
    cmpl    (%rsp), %eax        /* loading them costs more than all the rest: only when they differ */
    jne     1f
    cmpw    4(%rsp), %cx
    jne     1f
2:  addq    $8, %rsp
    popq    %r15
    popq    %r14
    popq    %r13
    popq    %r12
    popq    %rbx
    popq    %rbp
    ret
1:  ldmxcsr (%rsp)
    fldcw   4(%rsp)
    jmp     2b
    .cfi_endproc
    .size   light_switch, .-light_switch

    .globl  light_trampoline
    .hidden light_trampoline
    .type   light_trampoline, @function
    .p2align 4
light_trampoline:
    .cfi_startproc
    .cfi_undefined rip          /* the end of every backtrace */
    endbr64
    xorl    %ebp, %ebp
    callq   *%r12
    ud2
    .cfi_endproc
    .size   light_trampoline, .-light_trampoline
#endif
    .section .note.GNU-stack, "", @progbits
