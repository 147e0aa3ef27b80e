package brief

import (
	"math"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"
)

func TestTheQuotaOfAControlGroup(t *testing.T) {
	for _, c := range []struct {
		name  string
		files map[string]string
		want  float64
	}{
		{"none", nil, math.Inf(1)},
		{"second version, a container", map[string]string{"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "50000 100000\n"}, 0.5},
		{"second version, a container that sees its name", map[string]string{
			"proc/self/cgroup": "0::/kubepods/pod1/c\n", "sys/fs/cgroup/cpu.max": "150000 100000\n",
		}, 1.5},
		{"a unit of systemd within a slice", map[string]string{
			"proc/self/cgroup":                              "0::/a.slice/b.service\n",
			"sys/fs/cgroup/a.slice/cpu.max":                 "400000 100000\n",
			"sys/fs/cgroup/a.slice/b.service/cpu.max":       "max 100000\n",
			"sys/fs/cgroup/a.slice/other.service/cpu.max":   "1000 100000\n",
			"sys/fs/cgroup/cpu.max.burst":                   "0\n",
			"sys/fs/cgroup/a.slice/b.service/cpu.max.burst": "0\n",
		}, 4},
		{"first version", map[string]string{
			"proc/self/cgroup": "5:cpu,cpuacct:/x\n4:memory:/x\n",
			"sys/fs/cgroup/cpu,cpuacct/x/cpu.cfs_quota_us":  "200000\n",
			"sys/fs/cgroup/cpu,cpuacct/x/cpu.cfs_period_us": "100000\n",
		}, 2},
		{"first version, a container", map[string]string{
			"proc/self/cgroup": "5:cpu,cpuacct:/docker/c\n", "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "25000\n", "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
		}, 0.25},
		{"first version, none", map[string]string{
			"proc/self/cgroup": "5:cpu:/\n", "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1\n", "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
		}, math.Inf(1)},
		{"nonsense", map[string]string{"proc/self/cgroup": "what is this\n0::\n:\n", "sys/fs/cgroup/cpu.max": "many few"}, math.Inf(1)},
	} {
		t.Run(c.name, func(t *testing.T) {
			root := fstest.MapFS{}
			for name, text := range c.files { // order-free
				root[name] = &fstest.MapFile{Data: []byte(text)}
			}
			require.InDelta(t, c.want, quota(root), 0)
		})
	}
}
