package backend

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd/internal/contract"
)

func TestParentWithOneOfTheKeysOfAJobIsNamed(t *testing.T) {
	parent := new(int64(7))
	for keys, want := range map[string]*int64{
		"": nil, "stripe": parent, "tenant:42*all": parent, "other tenant:42*2": parent, "other": nil, "tenant:4": nil, "tenant:421*3": nil,
	} {
		job := contract.Job{Keys: new("stripe*3 tenant:42"), Parent: parent}
		if keys != "" {
			job.ParentKeys = &keys
		}
		require.Equal(t, want, parentWithKey(&job), keys)
	}
}
