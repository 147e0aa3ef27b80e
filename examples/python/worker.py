"""A complete worker with nothing but the standard library: python3 worker.py SOCKET TYPE..."""
import json, os, socket, sys, threading

def work(job):  # your part: the return value is the result, an exception is a failure
    return {"echo": job.get("payload"), "type": job["type"]}

def say(op, **fields):
    with lock: sock.sendall((json.dumps({"op": op, **fields}) + "\n").encode())
def run(job):
    name = {key: job[key] for key in ("job", "attempt", "session")}
    try: say("done", **name, result=work(job))
    except Exception as error: say("fail", **name, error=repr(error))
if len(sys.argv) < 3: sys.exit(__doc__)
lock, sock = threading.Lock(), socket.socket(socket.AF_UNIX)
try: sock.connect(sys.argv[1])
except OSError as error: sys.exit(f"no dispatcher on {sys.argv[1]}: {error}: start one, or give the path of its worker socket")
say("hello", versions=[1, 1], worker=f"python-{os.getpid()}", slots=[{"slot": 0, "types": sys.argv[2:]}])
for frame in map(json.loads, sock.makefile(encoding="utf-8")):
    if frame["op"] == "job": threading.Thread(target=run, args=(frame,), daemon=True).start()
    elif frame["op"] == "ping": say("pong")
    elif frame["op"] == "error": print(frame["message"], file=sys.stderr)
sys.exit(1)  # the connection has ended: a supervisor starts the worker again
