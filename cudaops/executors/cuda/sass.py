"""Machine instructions of a cubin by class, as nvdisasm shows them.

Classes go by opcode, and those of memory by what one thread moves: `global loads, 128 bit`. An
opcode that is in no table is `other`: it is counted, and nothing is said of what it does.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from cudaops.domain.execution import KernelResources
from cudaops.domain.instructions import KernelInstructions
from cudaops.executors.cuda.ncu import find_nvdisasm
from cudaops.executors.cuda.protocol import Launchable
from cudaops.executors.isolation.phases import Confinement
from cudaops.executors.process import run_bounded

SECONDS = 30.0
REMEDY = "python -m pip install nvidia-cuda-nvdisasm"
OTHER = "other"

_MOVED = {
    "LDG": "global loads", "STG": "global stores", "LDS": "shared loads", "STS": "shared stores",
    "LDL": "local loads", "STL": "local stores", "LD": "generic loads", "ST": "generic stores",
}  # fmt: skip
"""Opcodes whose width is told apart."""
_CLASSES: dict[str, str] = {
    opcode: name
    for name, opcodes in {
        "copies from global to shared": "LDGSTS UBLKCP UTMALDG UBLKPF",
        "matrix loads from shared": "LDSM",
        "constant loads": "LDC ULDC LDCU",
        "texture": "TEX TLD TLD4 TMML TXD TXQ SULD SUST SURED",
        "atomics": "ATOM ATOMG RED REDG REDAS SUATOM",
        "shared atomics": "ATOMS",
        "FP32": "FADD FADD32I FMUL FMUL32I FFMA FFMA32I FFMA2 FADD2 FMUL2 FSETP FSET FMNMX FMNMX3 "
        "FCHK FSWZADD FCMP UFADD UFMUL UFFMA UFSETP UFMNMX",
        "FP64": "DADD DMUL DFMA DSETP DMNMX DSET",
        "FP16": "HADD2 HMUL2 HFMA2 HSETP2 HSET2 HMNMX2 HADD2_32I HMUL2_32I HFMA2_32I",
        "tensor": "HMMA IMMA DMMA BMMA QMMA OMMA HGMMA IGMMA QGMMA BGMMA UTCHMMA UTCIMMA UTCQMMA",
        "MUFU": "MUFU",
        "conversions": "F2F F2I I2F I2I F2FP I2FP F2IP I2IP FRND UI2F UF2F UI2FP UF2I",
        "integer": "IADD IADD3 IADD32I IMAD IMAD32I IMUL IMUL32I ISETP ISET IMNMX VIMNMX VIMNMX3 "
        "VIADD VIADDMNMX IABS ISCADD ISCADD32I ISAD LEA LOP LOP3 LOP32I SHF SHL SHR POPC FLO BREV "
        "BMSK SGXT VABSDIFF VABSDIFF4 IDP IDP4A PLOP3 PSETP LEPC VHMNMX UIADD3 UIADD UIMAD UISETP "
        "ULEA ULOP ULOP3 ULOP32I USHF USHL USHR UPOPC UFLO UBREV UBMSK USGXT UPLOP3 UPSETP UIMNMX "
        "UVIADD UIABS UVIMNMX",
        "moves and selects": "MOV MOV32I SEL FSEL PRMT UMOV USEL UPRMT UFSEL S2R S2UR CS2R CS2UR "
        "R2UR P2R R2P UP2UR UR2UP R2B B2R AL2P",
        "branches": "BRA BRX BRXU JMP JMX JMXU CALL RET EXIT BPT KILL",
        "reconvergence": "BSSY BSYNC BREAK BMOV WARPSYNC YIELD RPCMOV ELECT UMEMSETS PREEXIT "
        "ACQBULK ENDCOLLECTIVE",
        "barriers": "BAR UCGABAR_ARV UCGABAR_WAIT SYNCS",
        "fences and waits": "MEMBAR ERRBAR CCTL CCTLL CCTLT FENCE DEPBAR LDGDEPBAR ARRIVES "
        "NANOSLEEP WARPGROUP USETMAXREG",
        "between lanes": "SHFL VOTE VOTEU MATCH REDUX CREDUX",
    }.items()
    for opcode in opcodes.split()
}  # fmt: skip
"""Source: instruction set references of Volta to Blackwell in CUDA Binary Utilities."""
_WIDTHS = {
    "8": 8, "U8": 8, "S8": 8, "16": 16, "U16": 16, "S16": 16, "32": 32, "64": 64, "128": 128,
    "256": 256, "ENL2": 256,
}  # fmt: skip
_SECTION = re.compile(r"^\s*\.section\s+\.text\.([^,\s]+)")
_LABEL = re.compile(r"^\s*([.$\w]+):\s*$")
_INSTRUCTION = re.compile(
    r"^\s*/\*[0-9a-fA-F]{4,}\*/\s+(?P<guard>@!?U?P\w+\s+)?(?P<opcode>[A-Z][\w.]*)(?P<rest>[^;]*);"
)


def class_of(opcode: str) -> str:
    """`LDG.E.128.CONSTANT` is of `global loads, 128 bit`."""
    name, *modifiers = opcode.split(".")
    if name == "IMAD" and modifiers[:1] == ["MOV"]:
        return "moves and selects"
    if name in _MOVED:
        width = next((_WIDTHS[m] for m in modifiers if m in _WIDTHS), 32)
        return f"{_MOVED[name]}, {width} bit"
    return _CLASSES.get(name, OTHER)


class Instruction(NamedTuple):
    """One of a listing."""

    kernel: str
    """Symbol of the kernel it stands in."""
    opcode: str
    """With its modifiers: `LDG.E.128.CONSTANT`."""
    guarded: bool
    """It is under a predicate: `@P0`."""


def instructions_in(listing: str) -> Iterator[Instruction]:
    """Of what `nvdisasm -c` prints. What fills a kernel up behind its end, NOPs and a branch to
    itself, is left out."""
    kernel = label = ""
    for text in listing.splitlines():
        if section := _SECTION.match(text):
            kernel = section[1]
        elif found := _LABEL.match(text):
            label = found[1]
        elif (found := _INSTRUCTION.match(text)) and kernel:
            opcode, rest = found["opcode"], found["rest"]
            to_itself = opcode == "BRA" and bool(label) and rest.strip(" `()") == label
            if opcode != "NOP" and not to_itself:
                yield Instruction(kernel, opcode, bool(found["guard"]))
            label = ""


def counted(listing: str) -> dict[str, dict[str, int]]:
    """Instructions of every kernel in what `nvdisasm -c` prints, by class."""
    kernels: dict[str, Counter[str]] = {}
    for one in instructions_in(listing):
        kernels.setdefault(one.kernel, Counter())[class_of(one.opcode)] += 1
    return {kernel: dict(counts) for kernel, counts in kernels.items()}


class Listing(NamedTuple):
    """What nvdisasm prints of a cubin."""

    text: str
    missing: str = ""
    """Why there is none; then `text` is empty."""


def disassembled(image: Path) -> Listing:
    """A cubin as `nvdisasm -c` prints it."""
    disassembler = find_nvdisasm()
    if disassembler is None:
        return Listing("", f"nvdisasm is not here, which shows a cubin's instructions: {REMEDY}")
    done = run_bounded(
        [str(disassembler), "-c", str(image)], cwd=image.parent, timeout_s=SECONDS,
        confine=Confinement("compile", reads=(image,)),
    )  # fmt: skip
    if done.exit_code:
        said = (done.stderr or done.stdout).strip().splitlines()[:1]
        return Listing("", f"nvdisasm refuses the cubin: {' '.join(said)[:200] or done.exit_code}")
    return Listing(done.stdout)


def instructions_of(
    image: Path, launchables: Sequence[Launchable], resources: Sequence[KernelResources]
) -> tuple[KernelInstructions, ...] | str:
    """Of these kernels of a cubin, each once; or why they are not known. `resources` are theirs, in
    the same order."""
    listing = disassembled(image)
    if listing.missing:
        return listing.missing
    found = counted(listing.text)
    kernels: dict[str, KernelInstructions] = {}
    for one, taken in zip(launchables, resources, strict=True):
        counts = found.get(one.symbol)
        if not counts:
            return f"nvdisasm shows no instruction of {one.shown}"
        kernels[one.symbol] = KernelInstructions(
            kernel=one.shown,
            sm_arch=taken.sm_arch,
            registers=taken.registers,
            spilled_bytes=taken.spill_store_bytes + taken.spill_load_bytes,
            counts=counts,
        )
    return tuple(kernels.values())
