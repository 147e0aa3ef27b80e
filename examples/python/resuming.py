"""A worker that keeps its job while the dispatcher restarts: python3 resuming.py SOCKET TYPE..."""
import json, os, random, socket, sys, threading, time

def work(job, stop):  # your part, as in worker.py; stop is set when the result is not wanted any more
    return {"echo": job.get("payload"), "type": job["type"]}

class Worker:
    """One slot. A job is held until the next one comes: only that shows that its report was read."""
    def __init__(self, path, types):
        self.path, self.types = path, types
        self.lock = threading.Lock()  # of what follows
        self.sock = self.held = None  # held: what runs in the slot, or ran there last
        self.busy = 0  # executions that have not ended, given up or not
        self.keep = 0.0  # seconds that a job goes on without a connection

    def say(self, op, **fields):
        try: self.sock.sendall((json.dumps({"op": op, **fields}) + "\n").encode())
        except (OSError, AttributeError): pass  # no connection: the next hello offers to resume it

    def report(self, held):
        if held.get("session") and held["report"]:
            op, fields = held["report"]
            self.say(op, job=held["job"], attempt=held["attempt"], session=held["session"], **fields)

    def run(self, job, held):
        try: report = "done", {"result": work(job, held["stop"])}
        except Exception as error: report = "fail", {"error": repr(error)}
        with self.lock:
            held["report"], self.busy = report, self.busy - 1
            if held is self.held: self.report(held)
            elif not self.busy: self.offer()

    def offer(self): self.say("slot_add", slots=[{"slot": 0, "types": self.types}])

    def give_up(self):
        self.held["stop"].set()
        self.held = None

    def hello(self):
        free, running = [{"slot": 0, "types": self.types}], []
        if self.held:
            self.held["times"] += 1
            running = [{**free[0], **{key: self.held[key] for key in ("job", "attempt", "times")}, "session": self.held["born"]}]
        if self.held or self.busy: free = []
        self.say("hello", versions=[1, 1], worker=f"python-{os.getpid()}", slots=free, running=running, resumes=True)

    def welcome(self, frame):
        self.keep = frame["limits"].get("resume_ms", 0) / 1000
        self.sock.settimeout(frame["limits"]["timeout_ms"] / 1000)  # there are pings meanwhile
        if not self.held: return
        if any((r["job"], r["attempt"]) == (self.held["job"], self.held["attempt"]) for r in frame.get("resumed") or []):
            self.held["session"] = frame["session"]
            return self.report(self.held)
        self.give_up()
        if not self.busy: self.offer()

    def take(self, frame):
        op = frame["op"]
        if op == "welcome": self.welcome(frame)
        elif op == "job":
            self.busy += 1
            self.held = {"job": frame["job"], "attempt": frame["attempt"], "born": frame["session"], "session": frame["session"],
                         "times": 0, "report": None, "stop": threading.Event()}
            threading.Thread(target=self.run, args=(frame, self.held), daemon=True).start()
        elif op in ("cancel", "stale") and self.held and self.held["job"] == frame["job"]: self.held["stop"].set()
        elif op == "ping": self.say("pong")
        elif op == "error":
            print(frame["message"], file=sys.stderr)
            if frame["code"] in ("version", "refused", "bad_json", "bad_value", "bad_slot") and frame["fatal"]: sys.exit(1)

    def connect(self):
        with socket.socket(socket.AF_UNIX) as sock:
            sock.settimeout(10); sock.connect(self.path)  # until the welcome says how long
            with self.lock:
                self.sock = sock
                self.hello()
            for line in sock.makefile(encoding="utf-8"):
                with self.lock: self.take(json.loads(line))

    def serve(self):
        pause, lost = 0.05, time.monotonic()
        while True:
            connected = time.monotonic()
            try: self.connect()
            except OSError: pass  # no dispatcher, or silent for too long
            with self.lock:
                if self.held and self.held.get("session"): lost = time.monotonic()
                self.sock = None
                if self.held: self.held["session"] = None
                if self.held and time.monotonic() - lost > self.keep: self.give_up()
            pause = 0.05 if time.monotonic() - connected > 5 else min(2 * pause, 1)
            time.sleep(pause * random.uniform(0.5, 1))

if len(sys.argv) < 3: sys.exit(__doc__)
Worker(sys.argv[1], sys.argv[2:]).serve()
