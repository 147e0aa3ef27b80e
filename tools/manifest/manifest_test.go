// Package manifest checks the Kubernetes manifest: Kubernetes would accept each object, and the commands in it are those of the program.
package manifest_test

import (
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/util/yaml"
	k8syaml "sigs.k8s.io/yaml"
)

const file = "../../packaging/kubernetes/dispatcherd.yaml"

// objects decodes every object strictly: an unknown or a repeated field is an error, and so is a value of another type.
func objects(t *testing.T) (list []any) {
	t.Helper()
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	types := map[string]func() any{
		"v1 Secret":                     func() any { return new(corev1.Secret) },
		"v1 Service":                    func() any { return new(corev1.Service) },
		"apps/v1 StatefulSet":           func() any { return new(appsv1.StatefulSet) },
		"apps/v1 Deployment":            func() any { return new(appsv1.Deployment) },
		"policy/v1 PodDisruptionBudget": func() any { return new(policyv1.PodDisruptionBudget) },
	}
	documents := yaml.NewDocumentDecoder(io.NopCloser(bytes.NewReader(text)))
	buffer := make([]byte, len(text))
	for {
		n, err := documents.Read(buffer)
		if errors.Is(err, io.EOF) {
			return list
		}
		require.NoError(t, err)
		var head struct{ APIVersion, Kind string }
		require.NoError(t, k8syaml.Unmarshal(buffer[:n], &head))
		create := types[head.APIVersion+" "+head.Kind]
		require.NotNil(t, create, "%s %s", head.APIVersion, head.Kind)
		object := create()
		require.NoError(t, k8syaml.UnmarshalStrict(buffer[:n], object), "%s", buffer[:n])
		list = append(list, object)
	}
}

// named returns the only object of a type with a name.
func named[T any](t *testing.T, name string, nameOf func(*T) string) *T {
	t.Helper()
	for _, o := range objects(t) {
		if o, ok := o.(*T); ok && nameOf(o) == name {
			return o
		}
	}
	require.Fail(t, "no object", "%s", name)
	return nil
}

func dispatchers(t *testing.T) *appsv1.StatefulSet {
	t.Helper()
	return named(t, "dispatcherd", func(s *appsv1.StatefulSet) string { return s.Name })
}

func worker(t *testing.T) *appsv1.Deployment {
	t.Helper()
	return named(t, "pdf-worker", func(d *appsv1.Deployment) string { return d.Name })
}

// What selects pods selects those of this manifest, and ports have the names of the container.
func TestSelectorsAndPortsMeetThePods(t *testing.T) {
	pods := dispatchers(t).Spec.Template
	ports := map[string]bool{}
	for _, p := range pods.Spec.Containers[0].Ports {
		ports[p.Name] = true
	}
	services := 0
	for _, o := range objects(t) {
		switch o := o.(type) {
		case *corev1.Service:
			services++
			assert.Equal(t, pods.Labels, o.Spec.Selector, o.Name)
			for _, p := range o.Spec.Ports {
				assert.True(t, ports[p.TargetPort.StrVal], "%s: %s", o.Name, p.TargetPort.StrVal)
			}
		case *policyv1.PodDisruptionBudget:
			assert.Equal(t, pods.Labels, o.Spec.Selector.MatchLabels)
		}
	}
	assert.Equal(t, 2, services)
	probed := pods.Spec.Containers[0]
	for _, probe := range []*corev1.Probe{probed.StartupProbe, probed.ReadinessProbe, probed.LivenessProbe} {
		require.NotNil(t, probe)
		assert.True(t, ports[probe.HTTPGet.Port.StrVal])
		assert.Equal(t, corev1.URISchemeHTTPS, probe.HTTPGet.Scheme)
	}
	assert.Equal(t, dispatchers(t).Spec.Selector.MatchLabels, pods.Labels)
	assert.Equal(t, worker(t).Spec.Selector.MatchLabels, worker(t).Spec.Template.Labels)
}

// Each volume that a container mounts exists, and each key that it reads is in a secret of this manifest. Others create
// dispatcherd-tls.
func TestSecretsAndVolumesExist(t *testing.T) {
	keys := map[string]bool{"dispatcherd-tls/tls.crt": true, "dispatcherd-tls/tls.key": true}
	for _, o := range objects(t) {
		if s, ok := o.(*corev1.Secret); ok {
			for key := range s.StringData {
				keys[s.Name+"/"+key] = true
			}
		}
	}
	for _, pod := range []corev1.PodSpec{dispatchers(t).Spec.Template.Spec, worker(t).Spec.Template.Spec} {
		files := map[string]bool{}
		for _, c := range append(slices.Clone(pod.InitContainers), pod.Containers...) {
			for _, m := range c.VolumeMounts {
				i := slices.IndexFunc(pod.Volumes, func(v corev1.Volume) bool { return v.Name == m.Name })
				require.GreaterOrEqual(t, i, 0, m.Name)
				if s := pod.Volumes[i].Secret; s != nil {
					for key := range keys {
						if name, ok := strings.CutPrefix(key, s.SecretName+"/"); ok {
							files[m.MountPath+"/"+name] = true
						}
					}
				}
			}
			for _, e := range c.Env {
				if e.ValueFrom != nil && e.ValueFrom.SecretKeyRef != nil {
					assert.True(t, keys[e.ValueFrom.SecretKeyRef.Name+"/"+e.ValueFrom.SecretKeyRef.Key], e.Name)
				}
			}
			for _, arg := range c.Args {
				if _, path, ok := strings.Cut(arg, "="); ok && strings.HasPrefix(path, "/etc/") {
					assert.True(t, files[path], arg)
				}
			}
		}
	}
}

// A pod gets more time to stop than its program takes, and runs without rights.
func TestPodsStopGracefullyAndHaveNoRights(t *testing.T) {
	for _, pod := range []corev1.PodSpec{dispatchers(t).Spec.Template.Spec, worker(t).Spec.Template.Spec} {
		assert.EqualValues(t, 60, *pod.TerminationGracePeriodSeconds)
		assert.True(t, *pod.SecurityContext.RunAsNonRoot)
		assert.False(t, *pod.AutomountServiceAccountToken)
		for _, c := range append(slices.Clone(pod.InitContainers), pod.Containers...) {
			assert.False(t, *c.SecurityContext.AllowPrivilegeEscalation)
			assert.True(t, *c.SecurityContext.ReadOnlyRootFilesystem)
			assert.Equal(t, []corev1.Capability{"ALL"}, c.SecurityContext.Capabilities.Drop)
		}
	}
}

// The worker knows the name of every dispatcher, in their order.
func TestWorkersKnowEveryDispatcher(t *testing.T) {
	set := dispatchers(t)
	var addresses []string
	for i := range int(*set.Spec.Replicas) {
		addresses = append(addresses, "tls://"+set.Name+"-"+string(rune('0'+i))+"."+set.Spec.ServiceName+":7411")
	}
	assert.Contains(t, worker(t).Spec.Template.Spec.Containers[0].Args, "--dispatcher="+strings.Join(addresses, ","))
}

// The program knows each flag: it reads all flags before it prints its help.
func TestProgramKnowsTheFlags(t *testing.T) {
	for _, pod := range []corev1.PodSpec{dispatchers(t).Spec.Template.Spec, worker(t).Spec.Template.Spec} {
		for _, c := range append(slices.Clone(pod.InitContainers), pod.Containers...) {
			args, _, _ := strings.Cut(strings.Join(c.Args, "\n"), "\n--\n")
			args = strings.ReplaceAll(args, "$(POD_NAME)", "pod-1")
			cmd := exec.Command("go", append(append([]string{"run", "./cmd/dispatcherd"}, strings.Split(args, "\n")...), "--help")...)
			cmd.Dir = "../.."
			out, err := cmd.CombinedOutput()
			assert.NoError(t, err, "%s", out)
		}
	}
}
