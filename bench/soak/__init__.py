"""A cluster under pod churn for as long as it is told to run, and the proof that nothing was lost or left behind.

`python -m bench.soak --minutes 20 --nodes 1000` starts `kubeqos up` as a user would, lets workloads come and go
(`load`), looks at the cluster and at its processes while they do (`watching`), deletes everything, and checks what must
be true then (`proof`). It ends by itself; the exit code says whether every check held.
"""
