package dashboard

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/compose-spec/compose-go/v2/loader"
	"github.com/compose-spec/compose-go/v2/types"
	"go.yaml.in/yaml/v4"
)

func compose(t *testing.T, body []byte) (*types.Project, error) {
	t.Helper()
	details := types.ConfigDetails{
		WorkingDir:  grafanaFolder,
		ConfigFiles: []types.ConfigFile{{Filename: "docker-compose.yml", Content: body}},
	}
	return loader.LoadWithContext(context.Background(), details)
}

func loadedCompose(t *testing.T) *types.Project {
	t.Helper()
	project, err := compose(t, read(t, "docker-compose.yml"))
	if err != nil {
		t.Fatal(err)
	}
	return project
}

func TestComposeFileFollowsTheSpecification(t *testing.T) {
	project := loadedCompose(t)
	for _, name := range []string{"prometheus", "grafana"} {
		service, there := project.Services[name]
		if !there {
			t.Fatalf("no service %s", name)
		}
		if _, tag, tagged := strings.Cut(service.Image, ":"); !tagged || tag == "latest" {
			t.Errorf("%s: image %s has no fixed version", name, service.Image)
		}
		if len(service.Ports) != 0 || service.NetworkMode != "host" {
			t.Errorf("%s: has to share the host's network, where the servers under test listen on loopback", name)
		}
	}
}

// The loader has to be able to say no.
func TestComposeLoaderSeesMistakes(t *testing.T) {
	text := string(read(t, "docker-compose.yml"))
	for _, change := range [][2]string{{"network_mode:", "networkmode:"}, {"volumes:", "volume:"}} {
		if _, err := compose(t, []byte(strings.Replace(text, change[0], change[1], 1))); err == nil {
			t.Errorf("%s in place of %s went unnoticed", change[1], change[0])
		}
	}
}

func TestEverythingListensOnLoopback(t *testing.T) {
	project := loadedCompose(t)
	if flags := strings.Join(project.Services["prometheus"].Command, " "); !strings.Contains(flags,
		"--web.listen-address=127.0.0.1:9090") {
		t.Error("Prometheus would listen on every address")
	}
	address := project.Services["grafana"].Environment["GF_SERVER_HTTP_ADDR"]
	if address == nil || *address != "127.0.0.1" {
		t.Error("Grafana would listen on every address")
	}
}

// What the compose file mounts from this folder has to be there, and where Grafana looks for it.
func TestMountsMatchProvisioning(t *testing.T) {
	project := loadedCompose(t)
	targets := map[string]string{}
	for _, volume := range append(project.Services["grafana"].Volumes, project.Services["prometheus"].Volumes...) {
		targets[volume.Target] = volume.Source
	}
	for target, file := range map[string]string{
		"/etc/grafana/provisioning":      "grafana/provisioning/datasources/prometheus.yml",
		"/var/lib/grafana/dashboards":    dashboardFile,
		"/etc/prometheus/prometheus.yml": "prometheus/prometheus.yml",
	} {
		if targets[target] == "" {
			t.Errorf("nothing is mounted at %s", target)
		}
		read(t, file)
	}
	var provider struct {
		Providers []struct {
			Type    string
			Options struct{ Path string }
		}
	}
	decode(t, "grafana/provisioning/dashboards/ws-compare.yml", &provider)
	if len(provider.Providers) != 1 || provider.Providers[0].Options.Path != "/var/lib/grafana/dashboards" {
		t.Errorf("the dashboard provider looks elsewhere: %+v", provider)
	}
}

func TestDataSource(t *testing.T) {
	var file struct {
		Datasources []struct {
			Type     string
			URL      string
			JSONData struct {
				TimeInterval string `yaml:"timeInterval"`
			} `yaml:"jsonData"`
		}
	}
	decode(t, "grafana/provisioning/datasources/prometheus.yml", &file)
	if len(file.Datasources) != 1 {
		t.Fatalf("%d data sources", len(file.Datasources))
	}
	source := file.Datasources[0]
	if source.Type != "prometheus" || source.URL != "http://127.0.0.1:9090" || source.JSONData.TimeInterval != "1s" {
		encoded, _ := json.Marshal(source)
		t.Errorf("data source is %s", encoded)
	}
}

func decode(t *testing.T, name string, into any) {
	t.Helper()
	if err := yaml.Unmarshal(read(t, name), into); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
}
