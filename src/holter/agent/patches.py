"""The catalogue of patches: everything of a framework or of Python that the agent ever puts something else in place of.

A list to read, and the test's expectation: tests/agent/test_patches.py takes stock of real processes under `holter
run`, `holter run --heal` and `holter plan`, and a patch that is not here, or a line here that nothing does any more,
fails it. Each line says who does it, in which layer, and why nothing gentler does.

Names are where the thing lies in the newest version known; `MODEL` is the class of a trained model of the user's.
"""

from collections import namedtuple

WATCH = "watch"  # whenever the framework is imported under `holter run`
HEAL = "heal"  # under `--heal` alone
PLAN = "plan"  # under `holter plan -- COMMAND` alone

# `when` is empty for what stands from the import of the framework, or its first training, to the end of the process.
Patch = namedtuple("Patch", "name layer framework by why when")


def _of(layer, framework, by, owner, names, why, when=""):
    return [Patch(owner + "." + name, layer, framework, by, why, when) for name in names.split()]


_TORCH, _KERAS, _TF = "torch >= 2.2", "keras >= 3.0", "tensorflow >= 2.16"
_LIGHTNING, _TRANSFORMERS = "lightning >= 2.0", "transformers"
_TRAINER = "keras.src.backend.tensorflow.trainer.TensorFlowTrainer"
_FUNCTION = "tensorflow.python.eager.polymorphic_function.polymorphic_function.Function"
_LOADER = "torch.utils.data.dataloader"

PATCHES = [
    # ---- Python
    *_of(WATCH, "python", "core/import_hook.py", "sys", "meta_path", "a finder in front tells when a framework is imported"),
    *_of(WATCH, "python", "core/exit_hooks.py", "sys", "exit", "who ended the run: by the time of atexit the frame is gone"),
    *_of(WATCH, "python", "core/exit_hooks.py", "os", "_exit", "who ended the run: nothing of Python runs after it"),
    *_of(WATCH, "python >= 3.12", "observe/calls_monitored.py", "sys", "monitoring",
         "which calls a slow step has: a tool of its own beside others, nothing is replaced", "one step"),
    *_of(WATCH, "python >= 3.12", "observe/caught_errors.py", "sys", "monitoring",
         "errors that a generator or thread catches: a tool of its own beside others, nothing is replaced", "training"),
    *_of(WATCH, "python < 3.12", "observe/calls_profiled.py", "_lsprof", "Profiler",
         "which calls a slow step has; a profile function of Python's would copy each frame's variables", "one step"),
    # ---- PyTorch, watched
    *_of(WATCH, _TORCH, "torch/observe/adapter.py", "torch.Tensor", "backward", "backward's time, and the loss itself"),
    *_of(WATCH, _TORCH, "torch/observe/adapter.py", "MODEL", "__call__",
         "forward's time and the batch; global module hooks slow every layer, an instance's are pickled with it"),
    *_of(WATCH, _TORCH, "torch/observe/adapter.py", "torch.nn.modules.module.Module", "train", "evaluation begins and ends"),
    *_of(WATCH, _TORCH, "torch/observe/adapter.py", "torch", "save", "a checkpoint, where it goes, and whether there is room"),
    *_of(WATCH, _TORCH, "torch/observe/adapter.py", _LOADER + "._BaseDataLoaderIter", "__next__", "a step's wait for data"),
    *_of(WATCH, _TORCH, "torch/observe/adapter.py", _LOADER + ".DataLoader", "__iter__", "an epoch begins, and its length"),
    *_of(WATCH, _TORCH, "torch/retained/objects.py", "torch.utils.data._utils.worker", "_worker_loop",
         "a forked worker is to be known as one before it draws"),
    *_of(WATCH, _TORCH, "torch/observe/adapter.py", "torch.optim.optimizer", "_global_optimizer_post_hooks",
         "steps: PyTorch's own global hook, nothing is replaced"),
    *_of(WATCH, _TORCH, "torch/observe/creations.py", "torch.nn.modules.module.Module", "__init__", "made where"),
    *_of(WATCH, _TORCH, "torch/observe/creations.py", "torch.optim.optimizer.Optimizer", "__init__",
         "made on which line, and what it trains"),
    *_of(WATCH, _TORCH, "torch/observe/creations.py", _LOADER + ".DataLoader", "__init__", "made on which line"),
    *_of(WATCH, _TORCH, "torch/nonfinite/batch.py", _LOADER + "._BaseDataLoaderIter", "_next_index",
         "which samples the batch with a NaN consists of"),
    *_of(WATCH, _TORCH, "torch/observe/loss_and_norm.py", "torch.amp.grad_scaler.GradScaler", "scale",
         "the loss before it is scaled"),
    *_of(WATCH, _TORCH, "torch/observe/loss_and_norm.py", "torch.nn.utils", "clip_grad_norm_",
         "a norm that was computed anyway"),
    *_of(WATCH, _TORCH, "torch/observe/compiles.py", "torch._dynamo.convert_frame", "_compile",
         "each compilation with its reason; the compiler's callbacks do not say of which function"),
    *_of(WATCH, _TORCH, "torch/observe/compiles.py", "torch", "compile", "in which line of a loop it is made anew"),
    *_of(WATCH, _TORCH, "torch/observe/compiles.py", "torch.jit", "trace", "in which line of a loop it is made anew"),
    *_of(WATCH, _TORCH, "torch/ranks/watch.py", "torch.distributed.distributed_c10d", "init_process_group",
         "a rank came, and met the others; PyTorch tells nobody, and a rank that waits there for ever runs nothing else"),
    *_of(WATCH, "torch < 2.4", "torch/observe/compiler.py", "torch._dynamo.eval_frame.TorchPatcher", "patch",
         "older compilers take the optimizers' hooks away", "older versions"),
    *_of(WATCH, "torch < 2.4", "torch/observe/compiler.py", "torch.optim.Optimizer subclasses", "step",
         "older compilers take the optimizers' hooks away", "older versions"),
    *_of(WATCH, _TORCH, "torch/retained/objects.py", "torch.utils.data._utils.fetch._MapDatasetFetcher", "fetch",
         "what a worker's dataset keeps", "in workers"),
    *_of(WATCH, _TORCH, "torch/retained/objects.py", "torch.utils.data._utils.fetch._IterableDatasetFetcher", "fetch",
         "what a worker's dataset keeps", "in workers"),
    *_of(WATCH, "cloudpickle", "observe/wrap.py", "cloudpickle.cloudpickle", "_extract_class_dict",
         "a model's class that is sent by its value is sent as it was; copies in joblib, Ray and PySpark alike",
         "when it is imported"),
    *_of(WATCH, "dill", "observe/wrap.py", "dill._dill", "_get_typedict_type",
         "a model's class that is sent by its value is sent as it was", "when it is imported"),
    # ---- Keras, watched
    *_of(WATCH, _KERAS, "keras/observe/fit.py", "keras.src.callbacks.callback_list.CallbackList",
         "on_train_begin on_train_end on_epoch_begin on_epoch_end on_train_batch_begin on_train_batch_end "
         "on_test_begin on_test_end on_test_batch_end on_predict_begin on_predict_end on_predict_batch_end",
         "steps of `fit`; a callback of our own would be listed with the user's"),
    *_of(WATCH, _KERAS, "keras/observe/adapter_keras.py", _TRAINER, "fit evaluate predict",
         "an error that leaves them is reported to no callback"),
    *_of(WATCH, _KERAS, "keras/observe/adapter_keras.py", _TRAINER, "train_on_batch test_on_batch predict_on_batch",
         "they report to no callback"),
    *_of(WATCH, _KERAS, "keras/observe/adapter_keras.py", "keras.src.optimizers.base_optimizer.BaseOptimizer", "__init__ apply",
         "made on which line; the step of a loop with a tape"),
    *_of(WATCH, _KERAS, "keras/observe/adapter_keras.py", "keras.src.trainers.trainer.Trainer", "__init__ compile",
         "made and compiled on which line"),
    *_of(WATCH, _KERAS, "keras/observe/adapter_keras.py", "keras.src.models.model.Model", "__call__ save save_weights export",
         "a loop that only calls a model is alive; checkpoints"),
    *_of(WATCH, _KERAS, "keras/observe/adapter_keras.py", "keras.src.saving.saving_lib", "save_model save_weights_only",
         "checkpoints that Keras's own callbacks write"),
    *_of(WATCH, _KERAS, "keras/observe/feed.py", "keras.src.trainers.data_adapters.py_dataset_adapter", "get_index",
         "which threads make batches"),
    # ---- TensorFlow, watched
    *_of(WATCH, _TF, "keras/observe/adapter_tensorflow.py", _FUNCTION, "__init__ __call__",
         "steps of a `tf.function`; TensorFlow tells nobody that one is called"),
    *_of(WATCH, _TF, "keras/observe/traces.py", "tensorflow.python.eager.polymorphic_function.tracing_compilation",
         "_create_concrete_function", "entered only when it really traces"),
    *_of(WATCH, _TF, "keras/observe/adapter_tensorflow.py", "tensorflow.python.eager.backprop.GradientTape",
         "__enter__ __exit__ gradient", "forward and backward of an eager step, and its loss"),
    *_of(WATCH, _TF, "keras/observe/adapter_tensorflow.py", "tensorflow.python.data.ops.iterator_ops.OwnedIterator", "__next__",
         "an eager loop's wait for data"),
    *_of(WATCH, _TF, "keras/observe/adapter_tensorflow.py", "tensorflow.python.checkpoint.checkpoint.Checkpoint", "write save",
         "checkpoints"),
    *_of(WATCH, _TF, "keras/observe/adapter_tensorflow.py", "tensorflow.python.util.tf_stack.SentinelFilter", "__init__",
         "our lines stay out of the stacks that TensorFlow prints"),
    *_of(WATCH, _TF, "keras/observe/adapter_tensorflow.py", "tensorflow.python.util.tf_stack", "EMPTY_SET",
         "our lines stay out of the stacks that TensorFlow prints", "a value: the paths of our files are added"),
    *_of(WATCH, _TF, "keras/observe/feed.py", "tensorflow.python.ops.script_ops.FuncRegistry", "__call__",
         "the time of Python generators within tf.data; the pipeline's own model does not see it"),
    # ---- Lightning and the Hugging Face Trainer, watched
    *_of(WATCH, _LIGHTNING, "trainers/adapter.py", "lightning.pytorch.loops.fit_loop._FitLoop",
         "on_run_start on_advance_start on_run_end", "a callback of our own would be listed and saved with the user's"),
    *_of(WATCH, _LIGHTNING, "trainers/adapter.py", "lightning.pytorch.loops.evaluation_loop._EvaluationLoop", "run",
         "validation's time"),
    *_of(WATCH, _LIGHTNING, "trainers/adapter.py", "lightning.pytorch.loops.prediction_loop._PredictionLoop", "run",
         "prediction's time"),
    *_of(WATCH, _LIGHTNING, "trainers/adapter.py", "lightning.pytorch.trainer.trainer.Trainer", "save_checkpoint",
         "checkpoints"),
    *_of(WATCH, _TRANSFORMERS, "trainers/adapter.py", "transformers.trainer_callback.CallbackHandler",
         "on_train_begin on_epoch_begin on_train_end", "a callback of our own would be listed with the user's"),
    *_of(WATCH, _TRANSFORMERS, "trainers/adapter.py", "transformers.trainer.Trainer",
         "evaluation_loop _save_checkpoint save_model", "evaluation's time; checkpoints"),
    # ---- PyTorch under --heal
    *_of(HEAL, _TORCH, "torch/heal/nonfinite.py", "torch.optim.optimizer",
         "_global_optimizer_pre_hooks _global_optimizer_post_hooks",
         "an update that is non-finite is held back: PyTorch's own global hooks, nothing is replaced"),
    *_of(HEAL, _TORCH, "torch/heal/split.py", "MODEL", "__call__", "a call that does not fit is made in chunks"),
    *_of(HEAL, _TORCH, "torch/heal/arm.py", _LOADER + ".DataLoader", "__init__",
         "loaders without workers, after these had taken the memory", "after a restart"),
    # ---- Keras and TensorFlow under --heal
    *_of(HEAL, _KERAS, "keras/heal/healer.py", "MODEL", "train_function",
         "the model's own step on chunks, or one that holds back a bad update", "after a failure or a restart"),
    # ---- trainers under --heal
    *_of(HEAL, _LIGHTNING, "trainers/resume.py", "lightning.pytorch.trainer.trainer.Trainer", "fit",
         "goes on from its own checkpoint after a restart; where to is an argument"),
    *_of(HEAL, _TRANSFORMERS, "trainers/resume.py", "transformers.trainer.Trainer", "train",
         "goes on from its own checkpoint after a restart; where to is an argument"),
    # ---- holter plan
    *_of(PLAN, _TORCH, "../planner/torch/first_steps.py", "torch.nn.modules.module.Module", "__call__",
         "which model is called, with what; before its first step no class is known to be a model's"),
    *_of(PLAN, _TORCH, "../planner/torch/first_steps.py", "torch.nn.functional",
         "cross_entropy nll_loss mse_loss l1_loss smooth_l1_loss huber_loss kl_div binary_cross_entropy "
         "binary_cross_entropy_with_logits", "the loss is drawn again at other sizes"),
]  # fmt: skip
