package check

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
)

const manifests = "../kubernetes"

// overlay is a kustomization as a user would write it, on top of serve.
const overlay = `
namespace: monitoring
resources: [../kubernetes/serve]
components: [../kubernetes/serve/prometheus-operator]
images:
  - {name: ghcr.io/spindle-lock/spindle, newTag: v1.2.3}
configMapGenerator:
  - name: spindle-serve
    behavior: merge
    literals: [SPINDLE_DB=projects/mine/instances/main/databases/orders, "SPINDLE_EXPECT=nightly,billing"]
`

// A manifest is what one command applies: a file, or the output of a kustomization.
type manifest struct {
	name    string
	yaml    []byte
	objects []runtime.Object
}

// all returns every manifest: the files, the two kustomizations, and an overlay with the component.
func all(t *testing.T) []manifest {
	t.Helper()
	var found []manifest
	files, err := filepath.Glob(manifests + "/*.yaml")
	require.NoError(t, err)
	for _, path := range files {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		found = append(found, manifest{name: filepath.Base(path), yaml: text})
	}
	found = append(found,
		manifest{name: "serve", yaml: built(t, filesys.MakeFsOnDisk(), manifests+"/serve")},
		manifest{name: "try", yaml: built(t, filesys.MakeFsOnDisk(), manifests+"/try")},
		manifest{name: "overlay", yaml: overlaid(t)})
	for i, m := range found {
		found[i].objects, err = decoded(m.yaml)
		require.NoError(t, err, m.name)
	}
	return found
}

// built returns the output of a kustomization, as kubectl kustomize prints it.
func built(t *testing.T, files filesys.FileSystem, path string) []byte {
	t.Helper()
	resources, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(files, path)
	require.NoError(t, err, path)
	text, err := resources.AsYaml()
	require.NoError(t, err, path)
	return text
}

// overlaid returns the output of the overlay, which is in a directory beside the manifests.
func overlaid(t *testing.T) []byte {
	t.Helper()
	files := filesys.MakeFsInMemory()
	require.NoError(t, fs.WalkDir(os.DirFS(manifests), ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(filepath.Join(manifests, path))
		if err != nil {
			return err
		}
		return files.WriteFile(filepath.Join("/kubernetes", path), text)
	}))
	require.NoError(t, files.WriteFile("/mine/kustomization.yaml", []byte(overlay)))
	return built(t, files, "/mine")
}

// decoder refuses fields that the type does not have, and fields that are set twice, as an API server does for kubectl.
var decoder = func() runtime.Decoder {
	if err := monitoring.AddToScheme(scheme.Scheme); err != nil {
		panic(err)
	}
	return serializer.NewCodecFactory(scheme.Scheme, serializer.EnableStrict).UniversalDeserializer()
}()

func decoded(text []byte) (objects []runtime.Object, err error) {
	reader := yaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(text)))
	for {
		document, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return objects, nil
		}
		if err != nil {
			return nil, err
		}
		object, _, err := decoder.Decode(document, nil, nil)
		if err != nil {
			return nil, err
		}
		objects = append(objects, object)
	}
}

// of returns the manifest's objects of one type.
func of[T runtime.Object](m manifest) (found []T) {
	for _, o := range m.objects {
		if o, is := o.(T); is {
			found = append(found, o)
		}
	}
	return found
}

// A misspelled field would be ignored by older clusters, and would make kubectl fail with newer ones.
func TestUnknownFieldsAreRefused(t *testing.T) {
	for _, m := range all(t) {
		require.NotEmpty(t, m.objects, m.name)
	}
	good := "apiVersion: v1\nkind: Service\nmetadata: {name: a}\n"
	_, err := decoded([]byte(good))
	require.NoError(t, err)
	_, err = decoded([]byte(good + "spec: {selectors: {app: a}}\n"))
	assert.ErrorContains(t, err, `unknown field "spec.selectors"`)
	_, err = decoded([]byte(good + "metadata: {name: b}\n"))
	assert.ErrorContains(t, err, "already set")
}

// A file that belongs to no manifest would not be checked.
func TestEveryFileBelongsToAManifest(t *testing.T) {
	var files, used []string
	require.NoError(t, filepath.WalkDir(manifests, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && d.Name() != "kustomization.yaml" {
			files = append(files, path)
		}
		return err
	}))
	for _, pattern := range []string{"/*.yaml", "/serve/serve.yaml", "/serve/prometheus-operator/servicemonitor.yaml", "/try/*.yaml"} {
		found, err := filepath.Glob(manifests + pattern)
		require.NoError(t, err)
		used = append(used, found...)
	}
	for _, path := range files {
		assert.True(t, slices.Contains(used, path), path)
	}
	text, err := os.ReadFile(manifests + "/try/kustomization.yaml")
	require.NoError(t, err)
	for _, path := range files {
		if in, name := filepath.Split(path); strings.HasSuffix(in, "/try/") && name != "kustomization.yaml" {
			assert.Contains(t, string(text), name)
		}
	}
}

// A user sets the version, the database and the locks in one place, and the pods get them.
func TestTheOverlaySetsTheVersionAndTheDatabase(t *testing.T) {
	text := string(overlaid(t))
	assert.Contains(t, text, "image: ghcr.io/spindle-lock/spindle:v1.2.3\n")
	assert.Contains(t, text, "SPINDLE_DB: projects/mine/instances/main/databases/orders\n")
	assert.Contains(t, text, "SPINDLE_EXPECT: nightly,billing\n")
	assert.Contains(t, text, "kind: ServiceMonitor\n")
	assert.NotContains(t, string(built(t, filesys.MakeFsOnDisk(), manifests+"/serve")), "ServiceMonitor", "a cluster without the operator would refuse it")
}
