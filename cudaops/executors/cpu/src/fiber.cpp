// Switching between the stacks of a block's threads: callee-saved registers and the stack pointer.
#include <cstdint>

#include "machine.h"

extern "C" void cudaops_switch(void** save, void* to);
extern "C" void cudaops_thread_main();

#if defined(__x86_64__)
asm(R"(
.text
.globl cudaops_switch
.type cudaops_switch,@function
cudaops_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  popq %rcx
  jmp *%rcx
.size cudaops_switch,.-cudaops_switch
)");
static void* prepare_stack(char* top) {
  auto* word = reinterpret_cast<void**>(top);
  *--word = nullptr;  // the caller's return address that nobody returns to
  *--word = (void*)&cudaops_thread_main;
  for (int i = 0; i < 6; ++i) *--word = nullptr;
  return word;
}
#elif defined(__aarch64__)
asm(R"(
.text
.globl cudaops_switch
.type cudaops_switch,%function
cudaops_switch:
  sub sp, sp, #160
  stp x19, x20, [sp, #0]
  stp x21, x22, [sp, #16]
  stp x23, x24, [sp, #32]
  stp x25, x26, [sp, #48]
  stp x27, x28, [sp, #64]
  stp x29, x30, [sp, #80]
  stp d8, d9, [sp, #96]
  stp d10, d11, [sp, #112]
  stp d12, d13, [sp, #128]
  stp d14, d15, [sp, #144]
  mov x9, sp
  str x9, [x0]
  mov sp, x1
  ldp x19, x20, [sp, #0]
  ldp x21, x22, [sp, #16]
  ldp x23, x24, [sp, #32]
  ldp x25, x26, [sp, #48]
  ldp x27, x28, [sp, #64]
  ldp x29, x30, [sp, #80]
  ldp d8, d9, [sp, #96]
  ldp d10, d11, [sp, #112]
  ldp d12, d13, [sp, #128]
  ldp d14, d15, [sp, #144]
  add sp, sp, #160
  ret
.size cudaops_switch,.-cudaops_switch
)");
static void* prepare_stack(char* top) {
  auto* word = reinterpret_cast<void**>(top - 160);
  for (int i = 0; i < 20; ++i) word[i] = nullptr;
  word[11] = (void*)&cudaops_thread_main;  // x30, the link register
  return word;
}
#else
#include <ucontext.h>
// No assembly for this processor: a context lives at the top of its own stack.
extern "C" void cudaops_switch(void** save, void* to) {
  ucontext_t here;
  *save = &here;
  swapcontext(&here, static_cast<ucontext_t*>(to));
}
static void* prepare_stack(char* top) {
  auto* context = reinterpret_cast<ucontext_t*>(((uintptr_t)top - sizeof(ucontext_t)) & ~(uintptr_t)63);
  getcontext(context);
  context->uc_stack.ss_sp = top - cudaops::fiber_bytes / 2;
  context->uc_stack.ss_size = (char*)context - (char*)context->uc_stack.ss_sp;
  context->uc_link = nullptr;
  makecontext(context, &cudaops_thread_main, 0);
  return context;
}
#endif
