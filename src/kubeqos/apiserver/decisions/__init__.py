"""The decision record of every pod (`model.decisions`): kept on disk beside the store, and served.

`keeper` gathers what was decided and follows the pods, `journal` is the file, `answers` the API. `server` starts it and
`app` asks it. It is told to people: nothing depends on it, no write waits for it, and what is lost is not missed by any
component.
"""
