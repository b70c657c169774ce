/* Code: the ELF files that compilers for AMD's GPUs write, loaded to find their kernels and variables. */
#include "library.h"

#include <elf.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

struct Reader {
    const char *file;
    size_t size;
};

struct Symbol {
    std::string name; /* without the ".kd" of a kernel's descriptor */
    bool is_kernel;
    uint64_t address, size;
    Kernel kernel;
};

struct Executable {
    std::map<std::string, std::unique_ptr<Symbol>> symbols;
    std::vector<void *> images;
};

/* What stands at the symbol of a kernel: the start of its descriptor. */
struct Descriptor {
    uint32_t group_segment, private_segment, arguments;
};

static Executable *executable_of(hsa_executable_t executable) {
    return reinterpret_cast<Executable *>(executable.handle);
}

template <class Type> static const Type *at(const char *file, uint64_t offset) {
    return reinterpret_cast<const Type *>(file + offset);
}

/* ---- loading ------------------------------------------------------------------------------------- */

API hsa_status_t hsa_code_object_reader_create_from_memory(const void *file, size_t size,
                                                           hsa_code_object_reader_t *made) {
    made->handle = reinterpret_cast<uint64_t>(new Reader{static_cast<const char *>(file), size});
    return OK;
}

API hsa_status_t hsa_code_object_reader_destroy(hsa_code_object_reader_t reader) {
    delete reinterpret_cast<Reader *>(reader.handle);
    return OK;
}

API hsa_status_t hsa_executable_create_alt(hsa_profile_t, hsa_default_float_rounding_mode_t, const char *,
                                           hsa_executable_t *made) {
    made->handle = reinterpret_cast<uint64_t>(new Executable);
    return OK;
}

API hsa_status_t hsa_executable_destroy(hsa_executable_t executable) {
    for (void *image : executable_of(executable)->images) hsa_amd_memory_pool_free(image);
    delete executable_of(executable);
    return OK;
}

static void add_symbol(Executable *executable, const char *image, const char *name, const Elf64_Sym &found,
                       const Twins &twins) {
    if (!*name || found.st_shndx == SHN_UNDEF || ELF64_ST_TYPE(found.st_info) != STT_OBJECT) return;
    auto symbol = std::make_unique<Symbol>();
    symbol->name = name;
    symbol->is_kernel = symbol->name.ends_with(".kd");
    symbol->address = reinterpret_cast<uint64_t>(image + found.st_value);
    symbol->size = found.st_size;
    if (symbol->is_kernel) {
        symbol->name.resize(symbol->name.size() - 3);
        auto *descriptor = at<Descriptor>(image, found.st_value);
        symbol->kernel = {symbol->name.c_str(), twins.find(symbol->name.c_str(), descriptor->arguments)};
    }
    executable->symbols[name] = std::move(symbol);
}

API hsa_status_t hsa_executable_load_agent_code_object(hsa_executable_t which, hsa_agent_t agent,
                                                       hsa_code_object_reader_t reader, const char *,
                                                       hsa_loaded_code_object_t *) {
    Executable *executable = executable_of(which);
    auto [file, file_size] = *reinterpret_cast<Reader *>(reader.handle);
    Twins twins(file, file_size);
    auto *header = at<Elf64_Ehdr>(file, 0);
    auto *segments = at<Elf64_Phdr>(file, header->e_phoff);
    auto *sections = at<Elf64_Shdr>(file, header->e_shoff);

    uint64_t end = 0;
    for (int i = 0; i < header->e_phnum; i++)
        if (segments[i].p_type == PT_LOAD) end = std::max(end, segments[i].p_vaddr + segments[i].p_memsz);
    void *memory;
    hsa_status_t status = hsa_amd_memory_pool_allocate(pool_of(agent.handle, COARSE), end, 0, &memory);
    if (status != OK) return status;
    auto *image = static_cast<char *>(memory);
    executable->images.push_back(memory);
    for (int i = 0; i < header->e_phnum; i++)
        if (segments[i].p_type == PT_LOAD)
            memcpy(image + segments[i].p_vaddr, file + segments[i].p_offset, segments[i].p_filesz);

    for (int i = 0; i < header->e_shnum; i++) {
        if (sections[i].sh_type != SHT_DYNSYM) continue;
        auto *symbols = at<Elf64_Sym>(file, sections[i].sh_offset);
        const char *names = file + sections[sections[i].sh_link].sh_offset;
        for (uint64_t j = 0; j < sections[i].sh_size / sizeof *symbols; j++)
            add_symbol(executable, image, names + symbols[j].st_name, symbols[j], twins);
    }
    return OK;
}

API hsa_status_t hsa_executable_agent_global_variable_define(hsa_executable_t, hsa_agent_t, const char *,
                                                             void *) {
    return OK;
}

API hsa_status_t hsa_executable_freeze(hsa_executable_t, const char *) { return OK; }

/* ---- looking up ---------------------------------------------------------------------------------- */

static hsa_executable_symbol_t handle_of(const Symbol *symbol) {
    return {reinterpret_cast<uint64_t>(symbol)};
}

API hsa_status_t hsa_executable_get_symbol_by_name(hsa_executable_t which, const char *name,
                                                   const hsa_agent_t *, hsa_executable_symbol_t *answer) {
    auto &symbols = executable_of(which)->symbols;
    auto found = symbols.find(name);
    if (found == symbols.end()) found = symbols.find(std::string(name) + ".kd");
    if (found == symbols.end()) return HSA_STATUS_ERROR_INVALID_SYMBOL_NAME;
    *answer = handle_of(found->second.get());
    return OK;
}

API hsa_status_t hsa_executable_iterate_symbols(hsa_executable_t which,
                                                hsa_status_t (*callback)(hsa_executable_t,
                                                                         hsa_executable_symbol_t, void *),
                                                void *data) {
    for (auto &[name, symbol] : executable_of(which)->symbols) {
        hsa_status_t status = callback(which, handle_of(symbol.get()), data);
        if (status != OK) return status;
    }
    return OK;
}

API hsa_status_t hsa_executable_symbol_get_info(hsa_executable_symbol_t which,
                                                hsa_executable_symbol_info_t what, void *answer) {
    auto *symbol = reinterpret_cast<const Symbol *>(which.handle);
    auto *descriptor = reinterpret_cast<const Descriptor *>(symbol->address);
    auto *number = static_cast<uint32_t *>(answer);
    auto *address = static_cast<uint64_t *>(answer);
    switch (what) {
    case HSA_EXECUTABLE_SYMBOL_INFO_TYPE:
        *number = symbol->is_kernel ? HSA_SYMBOL_KIND_KERNEL : HSA_SYMBOL_KIND_VARIABLE;
        return OK;
    case HSA_EXECUTABLE_SYMBOL_INFO_NAME_LENGTH: *number = uint32_t(symbol->name.size()); return OK;
    case HSA_EXECUTABLE_SYMBOL_INFO_NAME: memcpy(answer, symbol->name.data(), symbol->name.size()); return OK;
    case HSA_EXECUTABLE_SYMBOL_INFO_VARIABLE_ADDRESS: *address = symbol->address; return OK;
    case HSA_EXECUTABLE_SYMBOL_INFO_VARIABLE_SIZE: *number = uint32_t(symbol->size); return OK;
    case HSA_EXECUTABLE_SYMBOL_INFO_VARIABLE_IS_CONST:
    case HSA_EXECUTABLE_SYMBOL_INFO_KERNEL_DYNAMIC_CALLSTACK: *static_cast<bool *>(answer) = false; return OK;
    case HSA_EXECUTABLE_SYMBOL_INFO_KERNEL_OBJECT:
        *address = reinterpret_cast<uint64_t>(&symbol->kernel);
        return OK;
    case HSA_EXECUTABLE_SYMBOL_INFO_KERNEL_KERNARG_SEGMENT_SIZE: *number = descriptor->arguments; return OK;
    case HSA_EXECUTABLE_SYMBOL_INFO_KERNEL_GROUP_SEGMENT_SIZE: *number = descriptor->group_segment; return OK;
    case HSA_EXECUTABLE_SYMBOL_INFO_KERNEL_PRIVATE_SEGMENT_SIZE:
        *number = descriptor->private_segment;
        return OK;
    default: unknown("property %d of symbols", what); return HSA_STATUS_ERROR_INVALID_ARGUMENT;
    }
}
