"""Every case, in the order of the README."""

import falcon
import gemma
import gpt
import llama
import norms
import phi
import qwen

CASES = [case for module in (llama, qwen, gemma, phi, norms, gpt, falcon) for case in module.CASES]
