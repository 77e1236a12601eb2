// Linked after the author's object: its thread-local variables end here.
extern "C" {
extern __thread char cudaops_shared_end[];
__thread char cudaops_shared_end[16];
}
