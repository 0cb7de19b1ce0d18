"""The configuration of a run: plain dataclasses, composed into one ``RunConfig``. Imports no torch."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from hpcbench.config.bounds import UNBOUNDED, check_bounds, within

Precision = Literal["auto", "32-true", "bf16-mixed", "16-mixed", "64-true"]
READING_ONLY = "reading_only"
"""Metadata of a field of ``DataConfig`` subclasses that decides how files are read, not what they hold."""

MOST_SAMPLES = 10**10
"""Samples of a dataset, a batch or a step: 20,000 times CosmoFlow's."""
MOST_SIMULATED = 10**8 - 1
"""Samples to simulate; the names of their files have eight digits."""
MOST_STEPS = 10**9
MOST_REPEATS = 10_000
"""Runs of a point of a study."""
MOST_EPOCHS = 10**6
MOST_RANKS = 10**7
"""More than the cores of any machine."""
MOST_RATE = 1e4
"""Learning rate; those of LARS go up to about 50."""
LARGEST_SEED = 2**32 - 1
"""The largest seed that the generators of NumPy, torch and DALI all take."""


@dataclass
class DataConfig:
    """Where the samples are and how they are read."""

    root: str = ""
    """Folder of the dataset, as published (``train/``, ``validation/``)."""
    train_samples: int | None = field(default=None, metadata=within(1, MOST_SAMPLES))
    """Use the first N training samples (after sorting names); all when unset."""
    validation_samples: int | None = field(default=None, metadata=within(1, MOST_SAMPLES))
    """Use the first N validation samples; all when unset."""
    workers: int | None = field(default=None, metadata=within(0, 1024))
    """Reader processes per rank, or DALI's threads; unset chooses 0 if a rank has at most four cores, else four."""
    prefetch: int | None = field(default=None, metadata=within(1, 10_000))
    """Batches that each reader process (4 when unset) or DALI (2) reads ahead; without processes none are."""
    loader: Literal["torch", "dali"] = "torch"
    """What reads the samples; both give the same in the same order. NVIDIA DALI reads npy and plain TFRecord."""
    check_staged: bool = True
    """Compare the first read of every staged file with the checksum that it landed with; except DALI's reads."""
    last_batch: Literal["keep", "drop"] = "keep"
    """The last, smaller batch of an epoch: kept (every sample exactly once) or dropped."""


@dataclass
class StagingConfig:
    """Bringing the dataset to node-local storage before training."""

    destination: str = ""
    """Node-local folder to bring the dataset to ({node}, {rank}, $VARIABLES); empty trains from ``data.root``."""
    placement: Literal["replicate", "shard"] = "replicate"
    """Everything to every node, or a part of the training set to each, by bytes and seed, which its ranks train on."""
    contiguous: bool = False
    """Shards are runs of the files in the order of their names, as scripts cut them, and not drawn by seed."""
    reshuffle: bool = False
    """Draw new shards before every epoch but the first, and move files that change nodes by exchange."""
    slabs: bool = False
    """Bring each node only its rows of samples that ranks on several nodes share (parallel.spatial); npy files only."""
    path: Literal["direct", "exchange"] = "direct"
    """Each node reads what it needs, or every byte is read once in the job and then sent between the nodes."""
    transform: str = ""
    """What is done to each file on the way, such as gunzip or tfrecord-to-npy."""
    verify: Literal["none", "transfer", "reread"] = "transfer"
    """No checksums; CRC32C from the read on; or the landed files are read again, too."""
    repair: bool = False
    """First read again what is already there, and bring again files that are not what landed."""
    index: str = ""
    """Dataset index to take sizes and checksums from."""
    overlap: bool = False
    """Train the first epoch while files arrive; the time that it waits for them counts as staging."""
    threads: int = field(default=4, metadata=within(1, 256))
    """Streams of each rank that read and write at the same time."""
    timed: bool = True
    """Inside the scored time (rules 0.7 to 2.0) or before it, in the initialisation (allowed since 3.0)."""


@dataclass
class OptimConfig:
    """The optimizer. ``lr``, scaled with the batch if ``scaling`` says so, is always the peak of the schedule."""

    name: str = "sgd"
    """Optimizer; `hpcbench optimizers` lists them."""
    lr: float = field(default=0.001, metadata=within(0, MOST_RATE))
    """Peak learning rate, before scaling."""
    scaling: Literal["none", "linear", "sqrt"] = "none"
    """Multiply lr by the run's global batch size over base_batch_size, or by the square root of that."""
    base_batch_size: int | None = field(default=None, metadata=within(1, MOST_SAMPLES))
    """Global batch size that lr was found at."""
    weight_decay: float = field(default=0.0, metadata=within(0, 1e4))
    """Weight decay; CosmoFlow applies it as an L2 loss on its first two dense kernels, as published."""
    momentum: float | None = field(default=None, metadata=within(0, 1, open_high=True))
    """Momentum of sgd, lars and larc. This and all below: the optimizer's own default when unset."""
    nesterov: bool | None = None
    """Nesterov's form of the momentum."""
    betas: tuple[float, float] | None = field(default=None, metadata=within(0, 1, open_high=True))
    """Decay rates of the two moments of adam, adamw and lamb."""
    eps: float | None = field(default=None, metadata=within(0, 1e4))
    """Term added to a denominator: of the moments' ratio (adam, adamw, lamb) or of the trust ratio (lars)."""
    trust_coefficient: float | None = field(default=None, metadata=within(0, 1e4))
    """Factor in the trust ratio of lars and larc, before the norm of a layer's weights over that of its gradient."""
    trust_bounds: tuple[float, float] | None = field(default=None, metadata={**within(0, 1e9), UNBOUNDED: "[1]"})
    """Smallest and largest trust ratio of a layer of lars, larc or lamb; a largest of inf sets none."""
    clip_rate: bool | None = None
    """Cap each layer's rate at lr (larc) instead of multiplying lr by the trust ratio."""
    bias_correction: bool | None = None
    """Whether lamb's moments are corrected for their start at zero."""
    grad_averaging: bool | None = None
    """Whether lamb's first moment is an average, and not a sum."""
    always_adapt: bool | None = None
    """Whether lamb adapts layers without weight decay, too."""
    max_grad_norm: float | None = field(default=None, metadata=within(0, 1e9))
    """Divide all gradients so that their global norm is at most this; 0 leaves them."""
    fused: bool = True
    """Torch's fused kernel of sgd, adam and adamw where it has one; off shows what it gains."""
    decay_exclude: list[Literal["biases", "norms"]] | None = None
    """Parameters without weight decay."""
    adapt_exclude: list[Literal["biases", "norms"]] | None = None
    """Parameters whose trust ratio is 1."""


@dataclass
class ScheduleConfig:
    """The learning rate as a function of the step; every length below is in ``unit``, the warm-up in its own."""

    unit: Literal["epoch", "step"] = "epoch"
    """What milestones, t_max and warmup count; with ``epoch`` the rate is constant within an epoch."""
    shape: Literal["constant", "multistep", "cosine", "polynomial", "inverse_sqrt"] = "constant"
    """What follows the warm-up."""
    warmup: int = field(default=0, metadata=within(0, MOST_STEPS))
    """Length of the linear warm-up."""
    warmup_unit: Literal["epoch", "step", "epoch_by_step"] | None = None
    """What warmup counts, if that is not the unit of the rest; `epoch_by_step` counts epochs and rises every step."""
    warmup_start_lr: float = field(default=0.0, metadata=within(0, MOST_RATE))
    """Learning rate at the start of the warm-up; scaling leaves it alone, or lowers it to the peak."""
    milestones: list[int] = field(default_factory=list, metadata=within(0, MOST_STEPS))
    """Where the rate drops (multistep). In epochs they count from the start, in steps from the end of warm-up."""
    factors: list[float] = field(default_factory=list, metadata=within(0, 1e4))
    """Rate after each milestone as a fraction of the peak."""
    t_max: int = field(default=0, metadata=within(0, MOST_STEPS))
    """Half period of the cosine, length of the polynomial descent, or time scale of the inverse square root."""
    eta_min: float = field(default=0.0, metadata=within(0, MOST_RATE))
    """Lowest rate of the cosine, last rate of other descents; scaling leaves it alone, or lowers it to the peak."""
    power: float = field(default=1.0, metadata=within(0, 100, open_low=True))
    """Exponent of the polynomial; 1 is a straight line."""
    reference_quirks: bool = False
    """Repeat the published references' bugs (see docs/schedules.md) instead of the intended form."""


@dataclass
class TrainConfig:
    """The training loop."""

    max_epochs: int = field(default=10, metadata=within(1, MOST_EPOCHS))
    """Give up (exit code 3) after this many epochs."""
    max_steps: int | None = field(default=None, metadata=within(1, MOST_STEPS))
    """Stop after this many optimizer steps instead, in whatever epoch, with an evaluation; for studies of speed."""
    target: float | None = field(default=None, metadata=within(-1e9, 1e9))
    """Validation metric at which training stops; unset trains for ``max_epochs``."""
    evaluations_per_epoch: int = field(default=1, metadata=within(1, 1000, why="epochs are logged to three digits"))
    """Evaluate this often in an epoch, after equal parts of its steps; the target may then be met within an epoch."""
    local_batch_size: int = field(default=2, metadata=within(1, 2**20))
    """Samples per rank and micro-batch."""
    accumulation: int = field(default=1, metadata=within(1, 2**20))
    """Micro-batches per optimizer step (gradient accumulation)."""
    batchnorm_group_size: int = field(default=1, metadata=within(1, MOST_RANKS))
    """How many neighbouring ranks share the statistics of batch norm in training (synchronized batch norm)."""
    eval_batch_size: int | None = field(default=None, metadata=within(1, 2**20))
    """Samples per rank in evaluation; unset uses ``local_batch_size``."""
    precision: Precision = "auto"
    """auto is bf16-mixed on an accelerator (of NVIDIA: from Ampere on) or a processor with AMX or AVX512-BF16, else
    32-true."""
    tf32: bool | None = None
    """TF32 in float32 convolutions and matrix products of an NVIDIA GPU; unset: torch's default, only convolutions."""
    channels_last: bool = True
    """Memory layout of activations and kernels."""
    trust_ratios_every: int = field(default=0, metadata=within(0, MOST_STEPS))
    """Optimizer steps between records of the trust ratio of every layer (lars, larc, lamb); 0 records none."""
    noise_scale_every: int = field(default=0, metadata=within(0, MOST_STEPS))
    """Optimizer steps between measurements of the gradient noise scale; 0 measures none."""
    compile: bool = False
    """torch.compile the model."""
    cuda_graph: bool = False
    """Capture passes in a CUDA graph; on one process with one micro-batch per step the optimizer's step as well."""
    seed: int | None = field(default=None, metadata=within(0, LARGEST_SEED))
    """Seed of every random draw; unset takes one from the operating system and logs it."""
    checkpoint_every: int = field(default=1, metadata=within(0, MOST_EPOCHS))
    """Epochs between checkpoints; 0 writes none."""
    checkpoint_async: bool = True
    """Write checkpoints between epochs in a thread, from a copy in host memory, while training continues."""
    keep_checkpoints: int = field(default=2, metadata=within(1, MOST_EPOCHS))
    """How many of the newest checkpoints are kept."""
    baselines: bool = True
    """Compute the application's baselines after training, outside the scored time; they read the whole dataset."""
    page: bool = True
    """Draw the report page after training; without it `hpcbench report` draws it from the run folder."""


@dataclass
class ParallelConfig:
    """Ranks and threads."""

    devices: int | None = field(default=None, metadata=within(1, 1024))
    """Start this many ranks on this machine; unset means what mpiexec, torchrun or srun started."""
    threads: int | None = field(default=None, metadata=within(1, 1024))
    """Compute threads per rank; unset takes OMP_NUM_THREADS or shares the allowed cores among the node's ranks."""
    spatial: str = "1"
    """Spatial parallelism (domain decomposition): split each sample over this many neighbouring ranks in depth (or
    height), or over 2x2 in two dimensions."""
    shard_states: bool = False
    """Shard parameters, gradients and optimizer state over the ranks that have samples of their own (FSDP2, as stage 3
    of ZeRO)."""
    activation_checkpointing: bool = False
    """Keep few activations, and recompute the others in the backward pass (gradient checkpointing)."""
    simulated_nodes: int | None = field(default=None, metadata=within(1, MOST_RANKS))
    """Pretend that the ranks are on this many nodes, in contiguous runs, to try what several nodes do on one."""
    simulated_ranks: int | None = field(default=None, metadata=within(1, MOST_RANKS))
    """Each rank does the work of this many neighbouring ones, one pass after another, and trains as they would."""
    accelerator: Literal["auto", "cpu"] = "auto"
    """auto uses the accelerator that torch finds, or the CPU if there is none."""
    bucket_bytes: int = field(default=25 * 2**20, metadata=within(1, 2**40))
    """Gradients are reduced in pieces of about this size during the backward pass."""
    bucket_order: Literal["backward", "forward"] = "backward"
    """Order of the layers in these pieces: as their gradients arrive, or as in the model, to show what that costs."""
    reduce_dtype: Literal["gradient", "bfloat16", "float16"] = "gradient"
    """Type in which gradients are sent and summed: as they are, or rounded to half their bytes."""
    overlap: bool = True
    """Send gradients during the backward pass; off shows what that hides."""
    timeout_s: int = field(default=1800, metadata=within(1, 30 * 24 * 3600))
    """How long a collective operation may wait for another rank."""
    hang_s: int = field(default=60, metadata=within(0, 7 * 24 * 3600))
    """A rank that makes no progress for longer (or 20 of its steps; in long phases 10 times that) ends the run; 0:
    never."""


@dataclass
class MeasureConfig:
    """What a run measures about itself; ``ranks.csv`` holds it, rank by rank."""

    warmup_steps: int = field(default=5, metadata=within(0, MOST_STEPS))
    """Optimizer steps from the start of the process that no step figure counts."""
    profile_steps: int = field(default=0, metadata=within(0, 10_000))
    """Trace this many steps of rank 0 after the warm-up, which no figure counts either, with torch's profiler, into
    trace.json.gz; 0: none."""
    tensorboard: bool = False
    """Write losses and metrics for TensorBoard, into the folder tensorboard in the run folder."""
    extra: list[str] = field(default_factory=list)
    """Measurements from other packages, by name."""
    power: bool = False
    """Write each node's power for a submission, a reading each second, into the folder power in the run folder."""
    probe: bool = False
    """Time a matrix product and an all-reduce on every rank before the clock starts, to find slow nodes."""


@dataclass
class SubmissionConfig:
    """What an official log says about its submission."""

    org: str = "unnamed"
    """Submitting organisation."""
    platform: str = ""
    """Name of the system; the host's name when unset."""
    division: Literal["open", "closed"] = "open"
    """closed keeps the published model, data and rules."""
    status: Literal["research", "onprem", "cloud", "preview"] = "research"
    """Availability category."""
    ruleset: Literal["1.0.0", "2.0.0", "3.0.0"] = "3.0.0"
    """Rules that the run follows and the checker applies."""
    clear_cache: bool = False
    """Drop the dataset's pages from the operating system's cache before the clock starts."""


@dataclass
class SimulateConfig:
    """How large a simulated dataset is; applications add their physics."""

    train_samples: int = field(default=64, metadata=within(1, MOST_SIMULATED))
    """Samples in the training split."""
    validation_samples: int = field(default=16, metadata=within(1, MOST_SIMULATED))
    """Samples in the validation split."""
    seed: int = field(default=2019, metadata=within(0, LARGEST_SEED))
    """Seed of the simulated dataset."""


@dataclass
class RunConfig:
    """Everything that decides a run. An application subclasses it with its own data, model and simulation."""

    preset: str = ""
    """Name of the preset that this configuration started from."""
    data: DataConfig = field(default_factory=DataConfig)
    model: Any = None
    optim: OptimConfig = field(default_factory=OptimConfig)
    schedule: ScheduleConfig = field(default_factory=ScheduleConfig)
    train: TrainConfig = field(default_factory=TrainConfig)
    parallel: ParallelConfig = field(default_factory=ParallelConfig)
    staging: StagingConfig = field(default_factory=StagingConfig)
    measure: MeasureConfig = field(default_factory=MeasureConfig)
    submission: SubmissionConfig = field(default_factory=SubmissionConfig)
    simulate: SimulateConfig = field(default_factory=SimulateConfig)

    def validate(self) -> None:
        """Raise ``InputError`` for a number outside its bounds, or a combination that cannot run; no file is touched.

        Applications call this and add their own combinations.
        """
        check_bounds(self)
