package check

import (
	"testing"

	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	network "k8s.io/api/networking/v1"
	policy "k8s.io/api/policy/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// Pods with a service account that does not exist are never created.
func TestServiceAccountsAreDefined(t *testing.T) {
	for _, m := range all(t) {
		defined := map[string]bool{}
		for _, a := range of[*core.ServiceAccount](m) {
			defined[a.Name] = true
		}
		for _, w := range workloads(t, m) {
			account := w.pod.Spec.ServiceAccountName
			if account == "" {
				assert.NotNil(t, w.pod.Spec.AutomountServiceAccountToken, "%s has neither an account of its own nor none", w.name)
				continue
			}
			assert.True(t, defined[account], "%s: service account %q", w.name, account)
		}
	}
}

// Every selector matches the pods of a workload in the same manifest. If a port is named with it, the workload has that port.
func TestSelectorsSelectPods(t *testing.T) {
	for _, m := range all(t) {
		all := workloads(t, m)
		chosen := func(what string, s *meta.LabelSelector) (found []workload) {
			for _, w := range all {
				if w.selectedBy(t, s) {
					found = append(found, w)
				}
			}
			assert.Len(t, found, 1, "%s: %s", m.name, what)
			return found
		}
		for _, w := range all {
			assert.True(t, w.selectedBy(t, w.selector), w.name)
			for _, spread := range w.pod.Spec.TopologySpreadConstraints {
				assert.True(t, w.selectedBy(t, spread.LabelSelector), w.name)
			}
		}
		for _, b := range of[*policy.PodDisruptionBudget](m) {
			chosen("PodDisruptionBudget "+b.Name, b.Spec.Selector)
		}
		for _, s := range of[*core.Service](m) {
			for _, w := range chosen("Service "+s.Name, &meta.LabelSelector{MatchLabels: s.Spec.Selector}) {
				for _, p := range s.Spec.Ports {
					assert.True(t, hasPort(w.containers(), p.TargetPort), "%s: port %v of Service %s", w.name, p.TargetPort.String(), s.Name)
				}
			}
		}
		for _, p := range of[*network.NetworkPolicy](m) {
			w := chosen("NetworkPolicy "+p.Name, &p.Spec.PodSelector)[0]
			for _, rule := range p.Spec.Ingress {
				for _, from := range rule.From {
					chosen("senders of NetworkPolicy "+p.Name, from.PodSelector)
				}
				for _, port := range rule.Ports {
					assert.True(t, port.Port == nil || hasPort(w.containers(), *port.Port), "%s: port of NetworkPolicy %s", w.name, p.Name)
				}
			}
		}
		for _, s := range of[*apps.StatefulSet](m) {
			assert.True(t, headless(m, s.Spec.ServiceName), s.Name)
		}
	}
}

// Notifications are off. One value switches them on: it is the port that the pod names and that a NetworkPolicy opens to the pods that
// use the locks, at the address that the pod has, and to nobody else. The policy closes no port of another protocol.
func TestOneValueSwitchesNotificationsOn(t *testing.T) {
	switches := 0
	for w, c := range everyContainer(t) {
		env := map[string]core.EnvVar{}
		for _, e := range c.Env {
			env[e.Name] = e
		}
		if _, is := env["SPINDLE_NOTIFY"]; !is {
			continue
		}
		switches++
		assert.Empty(t, env["SPINDLE_NOTIFY"].Value, w.name)
		require.NotNil(t, env["SPINDLE_NOTIFY_ADDRESS"].ValueFrom, w.name)
		assert.Equal(t, "status.podIP", env["SPINDLE_NOTIFY_ADDRESS"].ValueFrom.FieldRef.FieldPath)
		assert.Contains(t, c.Ports, core.ContainerPort{Name: "notify", ContainerPort: 7700, Protocol: core.ProtocolUDP}, w.name)
		assert.Contains(t, string(w.in.yaml), `# ":7700" switches`)
		opened := 0
		for _, p := range of[*network.NetworkPolicy](w.in) {
			for _, rule := range p.Spec.Ingress {
				for _, port := range rule.Ports {
					if *port.Protocol == core.ProtocolUDP {
						opened++
						assert.Equal(t, "notify", port.Port.StrVal)
						assert.Equal(t, []network.NetworkPolicyPeer{{PodSelector: w.selector}}, rule.From)
					} else {
						assert.Nil(t, port.Port)
						assert.Empty(t, rule.From)
					}
				}
			}
		}
		assert.Equal(t, 1, opened, w.name)
	}
	assert.Equal(t, 3, switches)
}

func headless(m manifest, name string) bool {
	for _, s := range of[*core.Service](m) {
		if s.Name == name {
			return s.Spec.ClusterIP == core.ClusterIPNone
		}
	}
	return false
}

func hasPort(containers []core.Container, port intstr.IntOrString) bool {
	for _, c := range containers {
		for _, p := range c.Ports {
			if p.Name != "" && p.Name == port.StrVal || p.ContainerPort == port.IntVal {
				return true
			}
		}
	}
	return false
}

// The ServiceMonitor finds the Service and its port, or Prometheus would scrape nothing without a word.
func TestTheServiceMonitorFindsTheService(t *testing.T) {
	monitors := 0
	for _, m := range all(t) {
		for _, monitor := range of[*monitoring.ServiceMonitor](m) {
			monitors++
			selector, err := meta.LabelSelectorAsSelector(&monitor.Spec.Selector)
			assert.NoError(t, err)
			var ports []string
			for _, s := range of[*core.Service](m) {
				if selector.Matches(labels.Set(s.Labels)) {
					assert.Equal(t, monitor.Namespace, s.Namespace)
					for _, p := range s.Spec.Ports {
						ports = append(ports, p.Name)
					}
				}
			}
			for _, e := range monitor.Spec.Endpoints {
				assert.Contains(t, ports, e.Port)
			}
		}
	}
	assert.Equal(t, 1, monitors)
}

// Each probe asks a port that its own container has.
func TestProbesAskPortsOfTheirContainer(t *testing.T) {
	probes := 0
	for w, c := range everyContainer(t) {
		for _, p := range []*core.Probe{c.StartupProbe, c.ReadinessProbe, c.LivenessProbe} {
			if p == nil {
				continue
			}
			probes++
			switch {
			case p.HTTPGet != nil:
				assert.True(t, hasPort([]core.Container{c}, p.HTTPGet.Port), "%s: %s", w.name, p.HTTPGet.Port.String())
			case p.TCPSocket != nil:
				assert.True(t, hasPort([]core.Container{c}, p.TCPSocket.Port), "%s: %s", w.name, p.TCPSocket.Port.String())
			default:
				assert.Fail(t, "unknown probe", w.name)
			}
		}
	}
	assert.Greater(t, probes, 10)
}

// A volume that is mounted exists.
func TestMountedVolumesExist(t *testing.T) {
	for _, m := range all(t) {
		for _, w := range workloads(t, m) {
			volumes := map[string]bool{}
			for _, v := range w.pod.Spec.Volumes {
				volumes[v.Name] = true
			}
			for _, c := range w.containers() {
				for _, v := range c.VolumeMounts {
					assert.True(t, volumes[v.Name], "%s: volume %s", w.name, v.Name)
				}
			}
		}
	}
}
