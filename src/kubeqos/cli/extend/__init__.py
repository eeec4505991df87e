"""Commands for those who extend a node: run the built-in plugins and drivers, start new ones, judge any.

Called by `cli.main` and by `cluster.pluginprocesses`. What a node asks of them is `qrm`, `cci` and `cri.providers`.
"""
