"""Every label, annotation, taint and name that more than one part of gpufleet must spell the same way."""

from __future__ import annotations

from typing import Final

PREFIX: Final = "gpufleet.dev"
"""The one domain of our labels, annotations, taints and controller names."""

FLAVOR_LABEL: Final = f"{PREFIX}/flavor"
"""Node label: the flavor the node belongs to. Kueue copies it into the node selector of admitted pods."""

POOL_LABEL: Final = f"{PREFIX}/pool"
"""Node label: the pool of the fleet file the node belongs to."""

LOCATION_LABEL: Final = f"{PREFIX}/location"
"""Node label: `onprem`, `aws` or `gcp`."""

BURST_TAINT: Final = f"{PREFIX}/burst"
"""NoSchedule taint of every cloud node; only flavors behind the gate tolerate it."""

MANAGED_LABEL: Final = f"{PREFIX}/managed"
"""Namespace label: the admission policies apply to namespaces that carry it with the value `true`."""

TEAM_LABEL: Final = f"{PREFIX}/team"
"""Namespace and queue label: the team of the fleet file."""

VERDICT_ANNOTATION: Final = f"{PREFIX}/verdict"
"""Workload annotation, written by the agent alone: the last decision about the job, as JSON."""

VERDICT_CONDITION: Final = f"{PREFIX}/Burst"
"""Workload condition, written by the agent alone: the verdict as a sentence, for people."""

RECALL_ANNOTATION: Final = f"{PREFIX}/recall"
"""Workload annotation, written by an administrator (`gpufleet recall`): take the job out of the cloud; its reason."""

MOVE_ANNOTATION: Final = f"{PREFIX}/move"
"""Workload annotation, written by an administrator (`gpufleet move`): the cloud flavor where the job goes on; JSON."""

PROJECT_LABEL: Final = f"{PREFIX}/project"
"""Pod template label, set by the user: the project of the fleet file whose budget pays as well."""

DATA_SIZE_ANNOTATION: Final = f"{PREFIX}/data-size"
"""Pod template annotation, set by the user: how much data must be copied to the cloud first, e.g. `200Gi`."""

GPU_LABEL: Final = f"{PREFIX}/gpu"
"""Node label: the GPU model, by its name in flavors. A job may select it (`nodeSelector`) to insist on a model."""

EXPECTED_RUNTIME_ANNOTATION: Final = f"{PREFIX}/expected-runtime"
"""Pod template annotation, set by the user: how long the job is expected to run, e.g. `45m`."""

NOTICES_ANNOTATION: Final = f"{PREFIX}/notices"
"""Node annotation, written by the node agent alone: every notice in force that the node will go, as JSON."""

CORDONED_ANNOTATION: Final = f"{PREFIX}/cordoned"
"""Node annotation, written by the node agent alone: the notices it cordoned the node for; absent where others did."""

CLEARED_ANNOTATION: Final = f"{PREFIX}/cleared"
"""Node annotation, written by the agent alone: the notices for which no pod of ours is left there, joined by commas."""

EVICTING_TAINT: Final = f"{PREFIX}/evicting"
"""NoSchedule taint of a node with a notice, set by the node agent alone; its value is the kind of the worst notice."""

DRAIN_TAINT: Final = f"{PREFIX}/drain"
"""NoSchedule taint of a node, set by an administrator (`gpufleet drain`): empty it; its value says why and by when."""

AGENT_DRAIN_TAINT: Final = f"{PREFIX}/drain-by-agent"
"""The same, set by the agent for work of its own on the node."""

DRAIN_REASON_ANNOTATION: Final = f"{PREFIX}/drain-reason"
"""Node annotation, written by an administrator (`gpufleet drain`): what the node is emptied for, in words."""

RELAYOUT_ANNOTATION: Final = f"{PREFIX}/relayout"
"""Node annotation, written by the agent alone: how far the change of the node's MIG layout has come, as JSON."""

MIG_STATE_LABEL: Final = "nvidia.com/mig.config.state"
"""The MIG manager's own node label: `pending`, `rebooting`, `success` or `failed`."""

GPU_CONDITION: Final = f"{PREFIX}/GpuHealthy"
"""Node condition, written by the node agent alone: whether the GPUs of the node are fit for jobs."""

GPU_FAILED_TAINT: Final = f"{PREFIX}/gpu-failed"
"""NoSchedule taint of a node with a GPU that needs a reset or repair, by the node agent alone; its value says why."""

GPU_FAULTS_ANNOTATION: Final = f"{PREFIX}/gpu-faults"
"""Node annotation, written by the node agent alone: the faults of GPUs that stand since they were reported, as JSON."""

EVICTION_ANNOTATION: Final = f"{PREFIX}/eviction"
"""Workload annotation, written by the agent alone: how far the eviction of the job has come, as JSON."""

CHECKPOINT_REQUEST_ANNOTATION: Final = f"{PREFIX}/checkpoint-request"
"""Pod annotation, written by the agent alone: save now, by when and why, as JSON. A downward-API file shows it."""

CHECKPOINT_HOOK_ANNOTATION: Final = f"{PREFIX}/checkpoint-hook"
"""Pod template annotation, set by the user: where a pod listens for requests to save, e.g. `http://:8080/save`."""

CHECKPOINT_ANSWER_ANNOTATION: Final = f"{PREFIX}/checkpoint-answer"
"""Pod annotation, set by a job that may, or by the agent for a hook that answered: what it saved, as JSON."""

GATE_CONTROLLER: Final = f"{PREFIX}/burst-gate"
"""controllerName of our AdmissionCheck."""

GATE_NAME: Final = "gpufleet-burst-gate"
"""Name of our AdmissionCheck."""

BURST_INFIX: Final = "-burst-"
"""Stands between team and cloud flavor in the name of a burst twin, e.g. `vision-burst-h100-aws-spot`."""

WINDOW_INFIX: Final = "-window-"
"""Stands between team and class in the name of a LocalQueue whose class starts only in a window of time."""

SYSTEM_NAMESPACE: Final = "gpufleet-system"
"""Namespace of the agent."""

AGENT_NAME: Final = "gpufleet-router"
"""Name of the agent's Deployment, ServiceAccount, Lease and ConfigMap."""

NODE_AGENT_NAME: Final = "gpufleet-node"
"""Name of the node agent's DaemonSet, ServiceAccount, ClusterRole and policies."""

GPU_READER_NAME: Final = "gpufleet-gpus"
"""Name of the DaemonSet that reads GPUs, its ServiceAccount and ClusterRole."""

TOP_UPS_NAME: Final = "gpufleet-top-ups"
"""ConfigMap beside the agent's: what administrators added to budgets, an entry each (runtime.cost.topups)."""

FORECAST_NAME: Final = "gpufleet-forecast"
"""ConfigMap in each team's namespace, written by the agent: when its jobs are expected to start."""

QUEUE_LABEL: Final = "kueue.x-k8s.io/queue-name"
"""Kueue's own label: the LocalQueue of a job."""

PRIORITY_CLASS_LABEL: Final = "kueue.x-k8s.io/priority-class"
"""Kueue's own label: the WorkloadPriorityClass of a job, which is how a job names its class."""

MAX_EXEC_LABEL: Final = "kueue.x-k8s.io/max-exec-time-seconds"
"""Kueue's own label: the run time after which Kueue stops the job."""

GPU_RESOURCE: Final = "nvidia.com/gpu"
"""The extended resource of whole NVIDIA GPUs."""

MANAGED_BY_LABEL: Final = "app.kubernetes.io/managed-by"
"""Set to `gpufleet` on every object we create; a GitOps tool can leave these objects alone by it."""

MANAGED_BY: Final = "gpufleet"


def burst_queue(team: str, flavor: str) -> str:
    """Name of the burst twin, LocalQueue and ClusterQueue alike, that sends a team's jobs to one cloud flavor."""
    return f"{team}{BURST_INFIX}{flavor}"


def window_queue(team: str, job_class: str) -> str:
    """Name of the LocalQueue for a team's jobs of a class that starts only in a window of time."""
    return f"{team}{WINDOW_INFIX}{job_class.lower()}"
