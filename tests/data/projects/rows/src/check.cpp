#include <cstdio>
#include <kern/api.h>
int main() { printf("%d\n", normalise != nullptr); }
