"""The embedded control plane: a real Kubernetes API with Kueue and simulated GPU nodes, as plain processes on loopback.

It is for the stack `local` and for tests. It is no way to run real work: nodes are simulated by KWOK, and the only
thing that truly runs is our own agent, through `podrunner`. The Pulumi program never imports this package, so that a
deployment to a real cluster needs none of it.

Map: `toolchain` finds or builds the binaries · `state` is one directory per stack · `processes` starts and stops ·
`pki`, `audit`, `kueue`, `kwok` and `components` say how each part is set up · `controlplane` puts them together ·
`kubeclient` talks to the API · `podrunner` plays the kubelet for the agent.

Invariants: only loopback ports, no root, nothing written outside the state directory and the tool cache, and only
processes that carry this state's own mark are ever signalled.
"""
