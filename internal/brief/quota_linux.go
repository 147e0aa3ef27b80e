package brief

import (
	"io/fs"
	"math"
	"os"
	"path"
	"runtime"
	"strconv"
	"strings"
	"sync"
)

// processors is how many this program may use: those there are, and no more than the
// quota of its control group and of those around it. It is asked once: a quota that
// changes later is not seen.
var processors = sync.OnceValue(func() float64 {
	return min(float64(runtime.NumCPU()), quota(os.DirFS("/")))
})

// quota reads it from /proc and /sys/fs/cgroup, of the second version or the first;
// infinite if there is none, or none can be read. In a container the group's own name
// may not be seen in the tree that is mounted there; then its root counts.
func quota(root fs.FS) float64 {
	least := math.Inf(1)
	groups, _ := fs.ReadFile(root, "proc/self/cgroup")
	for line := range strings.Lines(string(groups)) {
		_, line, _ = strings.Cut(strings.TrimSpace(line), ":")
		controllers, group, ok := strings.Cut(line, ":")
		if !ok {
			continue
		}
		for dir := path.Clean("/" + group); ; dir = path.Dir(dir) {
			switch {
			case controllers == "":
				least = min(least, ofSecond(root, "sys/fs/cgroup"+dir))
			case strings.Contains(","+controllers+",", ",cpu,"):
				least = min(least, ofFirst(root, "sys/fs/cgroup/cpu"+dir), ofFirst(root, "sys/fs/cgroup/"+controllers+dir))
			}
			if dir == "/" {
				break
			}
		}
	}
	return least
}

func ofSecond(root fs.FS, dir string) float64 {
	b, _ := fs.ReadFile(root, path.Join(dir, "cpu.max"))
	limit, period, _ := strings.Cut(strings.TrimSpace(string(b)), " ")
	return share(limit, period)
}

func ofFirst(root fs.FS, dir string) float64 {
	limit, _ := fs.ReadFile(root, path.Join(dir, "cpu.cfs_quota_us"))
	period, _ := fs.ReadFile(root, path.Join(dir, "cpu.cfs_period_us"))
	return share(strings.TrimSpace(string(limit)), strings.TrimSpace(string(period)))
}

// share is infinite for what is no quota: "max", -1, or nothing.
func share(limit, period string) float64 {
	l, err := strconv.ParseFloat(limit, 64)
	p, wrong := strconv.ParseFloat(period, 64)
	if err != nil || wrong != nil || l <= 0 || p <= 0 {
		return math.Inf(1)
	}
	return l / p
}
