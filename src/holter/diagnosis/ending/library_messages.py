"""Errors of the libraries whose own words hold the cure: the message, and what to change in the script.

Each pattern is a piece of a library's own text, without what a run fills in. The tests raise each error for real where
this can be done without a GPU, and look the others up in the library's source.
"""

from __future__ import annotations

import re

from holter.finding import Cure


def _message(pattern: str, *cures: Cure) -> tuple[str, tuple[Cure, ...]]:
    """A message, by a piece of it, and what to change."""
    return pattern, cures


MESSAGES: tuple[tuple[str, tuple[Cure, ...]], ...] = (
    # --- PyTorch: loading
    _message(
        r"Weights only load failed",
        Cure(
            "if you trust the file, load all that is in it: weights_only=False", "torch.load(path, weights_only=False)"
        ),
        Cure("or allow the classes that the message names", "torch.serialization.add_safe_globals([...])"),
    ),
    _message(
        r"Attempting to deserialize object on a \w+ device but torch\.\w+\.is_available\(\) is False",
        Cure("load it onto the CPU: map_location", 'torch.load(path, map_location="cpu")'),
    ),
    _message(
        r"Error\(s\) in loading state_dict for",
        Cure("build the model as it was when the file was written; the message lists which keys differ"),
        Cure(
            "where the keys only begin with `module.` or `_orig_mod.`: save the model inside the wrapper",
            "torch.save(model.module.state_dict(), path)",
        ),
    ),
    # --- PyTorch: autograd
    _message(
        r"Trying to backward through the graph a second time",
        Cure("cut what is carried over from the step before: .detach()", "hidden = hidden.detach()", "equivalent"),
        Cure("or add the losses up and call backward() once", "(loss_a + loss_b).backward()"),
    ),
    _message(
        r"one of the variables needed for gradient computation has been modified by an inplace operation",
        Cure("replace the operation in place (x += y, x[i] = y, relu_) by one that makes a new tensor", "x = x + y"),
        Cure("find its line", "torch.autograd.set_detect_anomaly(True) at the top, for one run"),
    ),
    _message(
        r"element 0 of tensors does not require grad and does not have a grad_fn",
        Cure("compute the loss from the model's output, outside of no_grad() and with no .detach(), .item() or NumPy"),
    ),
    # --- PyTorch: shapes, types, devices
    _message(
        r"mat1 and mat2 shapes cannot be multiplied",
        Cure("give the layer as many in_features as its input has: the second number of the first shape"),
    ),
    _message(
        r"stack expects each tensor to be equal size",
        Cure(
            "pad the samples of a batch to one size in a collate_fn",
            "torch.nn.utils.rnn.pad_sequence(samples, batch_first=True)",
        ),
    ),
    _message(
        r"Expected more than 1 value per channel when training",
        Cure("leave out a last batch of one sample: drop_last=True", "DataLoader(..., drop_last=True)", "changed"),
    ),
    _message(
        r"Expected all tensors to be on the same device",
        Cure("move the model and every tensor of the batch to one device", "x, y = x.to(device), y.to(device)"),
    ),
    _message(
        r"Input type \(.{1,60}\) and (?:weight|bias) type \(.{1,60}\) should be the same",
        Cure("give input and weights one type and one device", "x = x.to(next(model.parameters()))"),
    ),
    _message(
        r"mat1 and mat2 must have the same dtype|expected m1 and m2 to have the same dtype|"
        r"expected scalar type \w+ but found \w+",
        Cure("give all of them one type, such as .float()", "x = x.float()"),
    ),
    _message(
        r"index out of range in self",
        Cure(
            "an id is as large as the embedding has rows, or larger: num_embeddings must be above the largest id",
            "nn.Embedding(int(ids.max()) + 1, ...)",
        ),
    ),
    _message(
        r"device-side assert triggered",
        Cure(
            "look for a label or an index outside of its range: run once on the CPU, where the error names it",
            "CUDA_VISIBLE_DEVICES= holter run -- COMMAND",
        ),
        Cure("or see the line on the GPU", "CUDA_LAUNCH_BLOCKING=1 holter run -- COMMAND"),
    ),
    _message(
        r"Torch not compiled with CUDA enabled",
        Cure("this PyTorch was built without CUDA: install the build for your driver (pytorch.org/get-started)"),
    ),
    _message(
        r"no kernel image is available for execution on the device",
        Cure("this build of the library has no code for this GPU: install a build that lists its compute capability"),
    ),
    _message(
        r"Attempting to unscale FP16 gradients",
        Cure(
            "keep the weights in float32 and let autocast compute in float16: no .half() on the model",
            "with torch.autocast(device): ...",
            "changed",
        ),
    ),
    # --- PyTorch: processes
    _message(
        r"before the\s+current process has finished its bootstrapping phase",
        Cure("put what starts the training under the main guard", 'if __name__ == "__main__":\n    main()'),
    ),
    _message(
        r"Cannot re-initialize CUDA in forked subprocess",
        Cure(
            "start workers with spawn, or touch the GPU only after they were started",
            'DataLoader(..., multiprocessing_context="spawn")',
        ),
    ),
    _message(
        r"Expected to have finished reduction in the prior iteration",
        Cure(
            "some parameters got no gradient in this step: tell DistributedDataParallel to look for them",
            "DistributedDataParallel(model, find_unused_parameters=True)",
        ),
    ),
    _message(
        r"(?:EADDRINUSE|[Aa]ddress already in use)",
        Cure(
            "another job uses this port: let torchrun choose a free one, or name another",
            "torchrun --standalone ..., or --master-port=29501",
        ),
    ),
    _message(
        r"Default process group has not been initialized",
        Cure(
            "start it with torchrun, and call torch.distributed.init_process_group() first",
            "torchrun --standalone --nproc-per-node=N train.py",
        ),
    ),
    # --- Keras and TensorFlow
    _message(
        r"You must call `compile\(\)` before",
        Cure("call compile() before fit() or evaluate()", 'model.compile(optimizer="adam", loss=...)'),
    ),
    _message(
        r"Failed to convert a NumPy array to a Tensor \(Unsupported object type",
        Cure(
            "the array holds Python objects: give its rows one length and one number type",
            'x = np.stack(rows).astype("float32")',
        ),
    ),
    _message(
        r"Data cardinality is ambiguous",
        Cure("give inputs and targets the same number of samples: their first dimensions differ"),
    ),
    _message(
        r"The filepath provided must end in `\.keras`|Invalid filepath extension for saving",
        Cure("end the file's name in .keras, or in .weights.h5 for weights alone"),
    ),
    _message(
        r"Arguments `target` and `output` must have the same (?:shape|rank)|logits and labels must have the same",
        Cure(
            "whole numbers as labels need a loss that begins with `sparse_`; one-hot rows need the one without",
            'loss="sparse_categorical_crossentropy"',
        ),
    ),
    # --- Hugging Face
    _message(
        r"Asking to pad but the tokenizer does not have a padding token",
        Cure("give the tokenizer a padding token", "tokenizer.pad_token = tokenizer.eos_token"),
    ),
    _message(
        r"Unable to create tensor, you should probably activate truncation and/or padding",
        Cure("pad and cut the samples of a batch to one length", "tokenizer(texts, padding=True, truncation=True)"),
    ),
    _message(
        r"Using the `Trainer` with `PyTorch` requires `accelerate",
        Cure("install what it needs: pip install 'accelerate'"),
    ),
)


def cures_of(message: str) -> tuple[Cure, ...]:
    """Give what a library's own message says to do; nothing for a message that is not known."""
    return next((cures for pattern, cures in MESSAGES if re.search(pattern, message)), ())
