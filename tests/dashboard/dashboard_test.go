package dashboard

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/grafana/grafana-foundation-sdk/go/prometheus"
	"github.com/grafana/grafana-foundation-sdk/go/stat"
	"github.com/grafana/grafana-foundation-sdk/go/timeseries"
	"github.com/grafana/grafana-foundation-sdk/go/units"
)

const dashboardFile = "grafana/dashboards/ws-compare.json"

// knownUnits are the units the dashboard may use; the constants do not compile when the SDK does not know them.
var knownUnits = map[string]bool{
	units.NoUnit: true, units.BytesIEC: true, units.BytesPerSecondSI: true, units.CountsPerSecond: true,
	units.MessagesPerSecond: true, units.Seconds: true,
}

type object = map[string]any

func loadStrictly(t *testing.T, body []byte) error {
	t.Helper()
	// Only the kinds that the dashboard uses: the SDK's list of all of them takes minutes to compile.
	runtime := cog.NewRuntime()
	runtime.RegisterPanelcfgVariant(timeseries.VariantConfig())
	runtime.RegisterPanelcfgVariant(stat.VariantConfig())
	runtime.RegisterDataqueryVariant(prometheus.VariantConfig())
	var board dashboard.Dashboard
	err := board.UnmarshalJSONStrict(body)
	// The SDK returns a non-nil error without text when all is well.
	if err != nil && strings.TrimSpace(err.Error()) != "" {
		return err
	}
	return nil
}

func loose(t *testing.T) object {
	t.Helper()
	var board object
	if err := json.Unmarshal(read(t, dashboardFile), &board); err != nil {
		t.Fatal(err)
	}
	return board
}

func panelsOf(t *testing.T, board object) []object {
	t.Helper()
	var found []object
	for _, each := range board["panels"].([]any) {
		found = append(found, each.(object))
	}
	if len(found) < 10 {
		t.Fatalf("only %d panels", len(found))
	}
	return found
}

func TestDashboardUnmarshalsStrictly(t *testing.T) {
	if err := loadStrictly(t, read(t, dashboardFile)); err != nil {
		t.Fatal(err)
	}
}

// The check above must be able to fail: one mistyped key at each depth has to be noticed.
func TestStrictUnmarshallingSeesMistypedKeys(t *testing.T) {
	text := string(read(t, dashboardFile))
	for _, change := range [][2]string{
		{`"graphTooltip"`, `"graphToolTip"`},
		{`"gridPos"`, `"gridPosition"`},
		{`"legendFormat"`, `"legendformat"`},
		{`"displayMode"`, `"displaymode"`},
		{`"lineWidth"`, `"linewidth"`},
		{`"includeAll"`, `"includeall"`},
		{`"titleFormat"`, `"titleformat"`},
		{`"reduceOptions"`, `"reduce"`},
	} {
		mistyped := strings.Replace(text, change[0], change[1], 1)
		if mistyped == text {
			t.Errorf("%s does not occur: choose another key to mistype", change[0])
		} else if loadStrictly(t, []byte(mistyped)) == nil {
			t.Errorf("%s in place of %s went unnoticed", change[1], change[0])
		}
	}
}

func TestEveryPanelIsComplete(t *testing.T) {
	seen := map[string]bool{}
	for _, panel := range panelsOf(t, loose(t)) {
		title, _ := panel["title"].(string)
		if title == "" || seen[title] {
			t.Errorf("panel %v: title %q is missing or used twice", panel["id"], title)
		}
		seen[title] = true
		if panel["type"] == "row" {
			continue
		}
		// Another kind would have to be registered above, or it is not checked strictly.
		if panel["type"] != "stat" && panel["type"] != "timeseries" {
			t.Errorf("%s: panels of type %v are not known here", title, panel["type"])
		}
		if text, _ := panel["description"].(string); len(text) < 20 {
			t.Errorf("%s: no description", title)
		}
		checkField(t, title, panel["fieldConfig"].(object))
		checkTargets(t, title, panel)
	}
}

func checkField(t *testing.T, title string, config object) {
	defaults := config["defaults"].(object)
	if unit, _ := defaults["unit"].(string); !knownUnits[unit] {
		t.Errorf("%s: unit %q is not one that is known here", title, unit)
	}
	if defaults["min"] != 0.0 {
		t.Errorf("%s: min is %v, not 0", title, defaults["min"])
	}
	steps := defaults["thresholds"].(object)["steps"].([]any)
	if value, there := steps[0].(object)["value"]; !there || value != nil {
		t.Errorf("%s: the first threshold must have \"value\": null", title)
	}
	coloured := config["overrides"].([]any)
	if len(coloured) < 6 {
		t.Errorf("%s: fixed colours for %d servers only", title, len(coloured))
	}
	for _, each := range coloured {
		pattern := each.(object)["matcher"].(object)["options"].(string)
		if _, err := regexp.Compile(strings.Trim(pattern, "/")); err != nil {
			t.Errorf("%s: %v", title, err)
		}
	}
}

func checkTargets(t *testing.T, title string, panel object) {
	if uid := panel["datasource"].(object)["uid"]; uid != "${datasource}" {
		t.Errorf("%s: data source %v is not the variable", title, uid)
	}
	targets, _ := panel["targets"].([]any)
	if len(targets) == 0 {
		t.Errorf("%s: no query", title)
	}
	refs := map[any]bool{}
	for _, each := range targets {
		query := each.(object)
		expression := query["expr"].(string)
		if refs[query["refId"]] {
			t.Errorf("%s: refId %v twice", title, query["refId"])
		}
		refs[query["refId"]] = true
		if query["datasource"].(object)["uid"] != "${datasource}" {
			t.Errorf("%s: a query with a data source of its own", title)
		}
		if legend, _ := query["legendFormat"].(string); !strings.HasPrefix(legend, "{{server}}") {
			t.Errorf("%s: legend %q does not begin with the server, so the fixed colours miss it", title, legend)
		}
		for _, ranged := range regexp.MustCompile(`\[[^\]]*\]`).FindAllString(expression, -1) {
			if ranged != "[$__rate_interval]" {
				t.Errorf("%s: range %s instead of [$__rate_interval]", title, ranged)
			}
		}
		for _, name := range []string{"$job", "$server", "$run"} {
			if !strings.Contains(expression, name) {
				t.Errorf("%s: variable %s is not used", title, name)
			}
		}
	}
}

func TestIdsAndGrid(t *testing.T) {
	ids := map[float64]bool{}
	taken := map[[2]int]string{}
	for _, panel := range panelsOf(t, loose(t)) {
		id, title := panel["id"].(float64), panel["title"].(string)
		if ids[id] {
			t.Errorf("%s: id %v twice", title, id)
		}
		ids[id] = true
		place := panel["gridPos"].(object)
		x, y := int(place["x"].(float64)), int(place["y"].(float64))
		w, h := int(place["w"].(float64)), int(place["h"].(float64))
		if x < 0 || y < 0 || w < 1 || h < 1 || x+w > 24 {
			t.Errorf("%s: %d,%d %dx%d leaves the grid of 24", title, x, y, w, h)
		}
		for column := x; column < x+w; column++ {
			for line := y; line < y+h; line++ {
				if other := taken[[2]int{column, line}]; other != "" {
					t.Fatalf("%s lies over %s", title, other)
				}
				taken[[2]int{column, line}] = title
			}
		}
	}
}

func TestImportableByHandAndByFile(t *testing.T) {
	board := loose(t)
	for _, key := range []string{"__inputs", "__requires", "id"} {
		if _, there := board[key]; there {
			t.Errorf("%q must not be in a provisioned dashboard", key)
		}
	}
	if board["uid"] != "ws-compare" {
		t.Errorf("uid is %v", board["uid"])
	}
}

func TestVariables(t *testing.T) {
	var names []string
	for _, each := range loose(t)["templating"].(object)["list"].([]any) {
		variable := each.(object)
		names = append(names, variable["name"].(string))
		if variable["type"] != "query" {
			continue
		}
		if variable["multi"] != true || variable["includeAll"] != true || variable["refresh"] != 2.0 {
			t.Errorf("%v: has to be multi, with All, refreshed with the time range", variable["name"])
		}
		if variable["definition"] != variable["query"].(object)["query"] {
			t.Errorf("%v: definition and query differ", variable["name"])
		}
	}
	if got := fmt.Sprint(names); got != "[datasource job server run]" {
		t.Errorf("variables are %s", got)
	}
}

func TestRunsAreAnnotated(t *testing.T) {
	list := loose(t)["annotations"].(object)["list"].([]any)
	if len(list) != 1 || !strings.Contains(list[0].(object)["expr"].(string), "bench_run_active{") {
		t.Error("no annotation of runs from bench_run_active")
	}
}
