package actor

import (
	"math/bits"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/slotindex"
)

// jobTable finds the jobs in hand by id. It is a map for keys that come in
// runs: four consecutive ids share a cache line, so that of jobs which were
// inserted, claimed and finished together three in four cost no look at cold
// memory. With 100,000 jobs in hand that is where most of the time would go.
//
// Open addressing with linear probing, at most half full; a deletion moves the
// followers up, so there are no tombstones and no order depends on history
// except that of all, which no caller may rely on.
type jobTable struct {
	entries []jobEntry // a power of two of them
	shift   uint8      // 64 minus the number of bits of a group's number
	n       int
	perType []int32           // by slotindex.TypeID
	newest  dispatcherd.JobID // no larger id was put since the table was last empty
}

type jobEntry struct {
	id  dispatcherd.JobID // 0 = empty
	job *job
}

const (
	groupBits     = 2 // ids in a row that stay together
	smallestTable = 64
)

// home is the preferred place of an id.
func (t *jobTable) home(id dispatcherd.JobID) int {
	group := (uint64(id) >> groupBits) * 0x9e3779b97f4a7c15 >> t.shift
	return int(group)<<groupBits | int(id)&(1<<groupBits-1)
}

func (t *jobTable) find(id dispatcherd.JobID) int {
	mask := len(t.entries) - 1
	i := t.home(id)
	for t.entries[i].id != 0 && t.entries[i].id != id {
		i = (i + 1) & mask
	}
	return i
}

// get returns the job, or nil.
func (t *jobTable) get(id dispatcherd.JobID) *job {
	if t.n == 0 || id == 0 {
		return nil
	}
	return t.entries[t.find(id)].job
}

// getOld is get for ids most of which are larger than all in the table, as
// those of rows that are read ahead: for these it looks at no cold memory.
func (t *jobTable) getOld(id dispatcherd.JobID) *job {
	if id > t.newest {
		return nil
	}
	return t.get(id)
}

// Len returns the number of jobs. With OfType and InHand it implements backlog.Jobs.
func (t *jobTable) Len() int { return t.n }

// OfType returns the number of jobs of one type.
func (t *jobTable) OfType(typ slotindex.TypeID) int {
	if int(typ) >= len(t.perType) {
		return 0
	}
	return int(t.perType[typ])
}

// put adds a job whose id is not in the table.
func (t *jobTable) put(j *job) {
	if 2*(t.n+1) > len(t.entries) {
		t.grow()
	}
	t.entries[t.find(j.id)] = jobEntry{j.id, j}
	for int(j.typ) >= len(t.perType) {
		t.perType = append(t.perType, 0)
	}
	t.perType[j.typ]++
	if t.n++; t.n == 1 {
		t.newest = j.id
	}
	t.newest = max(t.newest, j.id)
}

func (t *jobTable) grow() {
	old := t.entries
	size := max(smallestTable, 2*len(old))
	t.entries = make([]jobEntry, size)
	t.shift = uint8(64 - bits.TrailingZeros(uint(size)>>groupBits))
	for _, e := range old {
		if e.id != 0 {
			t.entries[t.find(e.id)] = e
		}
	}
}

// remove takes an id out.
func (t *jobTable) remove(id dispatcherd.JobID) {
	mask := len(t.entries) - 1
	hole := t.find(id)
	t.perType[t.entries[hole].job.typ]--
	for i := (hole + 1) & mask; t.entries[i].id != 0; i = (i + 1) & mask {
		// An entry may fill the hole unless its home lies behind it.
		if home := t.home(t.entries[i].id); (i-home)&mask >= (i-hole)&mask {
			t.entries[hole] = t.entries[i]
			hole = i
		}
	}
	t.entries[hole] = jobEntry{}
	t.n--
}
