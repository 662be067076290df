package switchboard

import "time"

// MaxBudgets is the most budgets that may match one call.
const MaxBudgets = 16

// A Budget limits what calls cost, or how many calls there are, in each window of time.
type Budget struct {
	ID    string      // an id; unique for its owner
	Owner BudgetOwner // where it is configured

	// Match says which calls count. The zero BudgetMatch matches every call of a tool.
	Match BudgetMatch `json:",omitzero"`

	// Per divides the calls: each group of calls has the whole limit. "" means PerTenant.
	Per BudgetPer `json:",omitempty"`

	// Limit is in Micros, or a number of calls if Calls is set. It is 0 to MaxMicros.
	Limit int64
	Calls bool `json:",omitzero"`

	// Window is aligned in Zone, a name of the IANA time zone database; "" means UTC. Location is Zone, loaded; nil means UTC.
	Window   BudgetWindow
	Zone     string         `json:",omitempty"`
	Location *time.Location `json:"-"`

	// Warn lists percentages of the limit, 1 to 100, sorted. When an account passes one, Switchboard warns once in each window.
	Warn []int `json:",omitempty"`

	Position string `json:"-"` // the place in the file, as file:line:column
}

// Name returns the budget's name, which is unique in a tenant, such as tenant/paid.
func (b *Budget) Name() string { return string(b.Owner) + "/" + b.ID }

// A BudgetOwner says where a budget is configured: OwnerOperator, OwnerRow, OwnerTenant, "task/ID" or "tool/SERVER/NAME".
type BudgetOwner string

// The owners without a name. An operator's budget counts for each tenant by itself.
const (
	OwnerOperator BudgetOwner = "operator" // budgets: in switchboard.yaml
	OwnerRow      BudgetOwner = "row"      // the tenant's row in switchboard.yaml
	OwnerTenant   BudgetOwner = "tenant"   // the tenant's own file
)

// A BudgetMatch says which calls a budget counts. Each list that is not empty must have an element that fits. Verbs and Resources
// must fit the same capability.
type BudgetMatch struct {
	Servers     []string    `json:",omitempty"` // patterns of server ids
	Tools       []string    `json:",omitempty"` // patterns server/tool
	Classes     []string    `json:",omitempty"` // of servers
	Verbs       []Verb      `json:",omitempty"`
	Resources   []Resource  `json:",omitempty"` // also fits a resource that is below one of these
	CostClasses []CostClass `json:",omitempty"`

	Capabilities []string `json:",omitempty"` // ids of named capabilities that the tools provide
}

// A BudgetPer says which calls share one account of a budget.
type BudgetPer string

// The divisions.
const (
	PerTenant    BudgetPer = "tenant"
	PerPrincipal BudgetPer = "principal"
	PerTask      BudgetPer = "task"
	PerRun       BudgetPer = "run"
	PerTool      BudgetPer = "tool"
)

// BudgetPers lists the divisions.
var BudgetPers = []BudgetPer{PerTenant, PerPrincipal, PerTask, PerRun, PerTool}

// A BudgetWindow is how long a budget counts before it begins anew.
type BudgetWindow string

// The windows.
const (
	WindowHour    BudgetWindow = "1h"
	WindowDay     BudgetWindow = "1d"
	WindowWeek    BudgetWindow = "7d"
	Window30Days  BudgetWindow = "30d"
	WindowMonth   BudgetWindow = "month"
	WindowForever BudgetWindow = "forever"
)

// BudgetWindows lists the windows.
var BudgetWindows = []BudgetWindow{WindowHour, WindowDay, WindowWeek, Window30Days, WindowMonth, WindowForever}

// A CostClass says how calls of a tool are paid for.
type CostClass string

// The classes, the cheapest first.
const (
	CostFree    CostClass = "free"
	CostMetered CostClass = "metered"
	CostPaid    CostClass = "paid"
)

// CostClasses lists the classes, the cheapest first.
var CostClasses = []CostClass{CostFree, CostMetered, CostPaid}

// CostClass returns the stated class of the tool, or CostMetered if none is stated and calls have a price; else "".
func (t *Tool) CostClass() CostClass {
	if t.Contract.CostClass == "" && t.Price != nil && !t.Price.Free() {
		return CostMetered
	}
	return t.Contract.CostClass
}
