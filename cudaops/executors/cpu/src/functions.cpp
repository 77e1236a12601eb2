// Functions of the program by what they are called, so that a pointer to one of a program is one to the
// same function in a unit, where it has another address.
#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <map>
#include <string>

#include "machine.h"

namespace cudaops {

namespace {

struct Functions {
  std::map<uintptr_t, uint64_t> token_of;
  std::map<uint64_t, uintptr_t> address_of;
  std::map<uintptr_t, std::string> name_of;
};

uint64_t token_of_name(const char* name) {  // FNV-1a; none is 0
  uint64_t hash = 0xcbf29ce484222325ull;
  for (; *name; ++name) hash = (hash ^ (unsigned char)*name) * 0x100000001b3ull;
  return hash | 1;
}

int note_base(dl_phdr_info* info, size_t, void* base) {
  *(uintptr_t*)base = info->dlpi_addr;  // the executable comes first
  return 1;
}

// The symbols of the executable, as the linker left them.
Functions read_functions() {
  Functions found;
  int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
  struct stat info {};
  if (fd < 0 || fstat(fd, &info) != 0) return found;
  auto* file = (const char*)mmap(nullptr, (size_t)info.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
  close(fd);
  if (file == MAP_FAILED) return found;
  uintptr_t base = 0;
  dl_iterate_phdr(note_base, &base);
  auto* head = (const ElfW(Ehdr)*)file;
  auto* sections = (const ElfW(Shdr)*)(file + head->e_shoff);
  for (unsigned i = 0; i < head->e_shnum; ++i) {
    if (sections[i].sh_type != SHT_SYMTAB) continue;
    auto* symbols = (const ElfW(Sym)*)(file + sections[i].sh_offset);
    const char* names = file + sections[sections[i].sh_link].sh_offset;
    for (size_t s = 0; s < sections[i].sh_size / sizeof *symbols; ++s) {
      if (ELF64_ST_TYPE(symbols[s].st_info) != STT_FUNC || !symbols[s].st_value) continue;
      uint64_t token = token_of_name(names + symbols[s].st_name);
      found.token_of[base + symbols[s].st_value] = token;
      found.name_of[base + symbols[s].st_value] = names + symbols[s].st_name;
      found.address_of[token] = base + symbols[s].st_value;
    }
  }
  munmap((void*)file, (size_t)info.st_size);
  return found;
}

const Functions& functions() {
  static const auto* found = new Functions(read_functions());  // kept: the runtime's last words come late
  return *found;
}

}  // namespace

uint64_t function_token(uintptr_t address) {
  auto at = functions().token_of.find(address);
  return at == functions().token_of.end() ? 0 : at->second;
}
const char* name_of_function(uintptr_t address) {
  auto at = functions().name_of.find(address);
  return at == functions().name_of.end() ? nullptr : at->second.c_str();
}
const void* function_of(unsigned long long token) {
  auto at = functions().address_of.find(token);
  return at == functions().address_of.end() ? nullptr : (const void*)at->second;
}

std::vector<char> portable(const GlobalVariable& v) {
  std::vector<char> bytes((const char*)v.address, (const char*)v.address + v.size);
  for (size_t at = 0; v.functions && at + 8 <= v.size; at += 8) {
    uint64_t word;
    std::memcpy(&word, &bytes[at], 8);
    if (uint64_t token = function_token(word)) std::memcpy(&bytes[at], &token, 8);
  }
  return bytes;
}
void make_own(GlobalVariable& v) {
  for (size_t at = 0; v.functions && at + 8 <= v.size; at += 8) {
    uint64_t word;
    std::memcpy(&word, (char*)v.address + at, 8);
    if (const void* own = function_of(word)) std::memcpy((char*)v.address + at, &own, 8);
  }
}

}  // namespace cudaops
