package sample

import (
	"fmt"
	"slices"
	"strings"
)

// A user has the rights that the attached policies allow.
type user struct {
	Name     string   `json:"UserName"`
	Policies []string `json:"AttachedPolicies"` // sorted
}

// policyActions are the existing policies with the actions that they allow: whole services, single
// actions, or reading.
var policyActions = map[string][]string{
	"AdministratorAccess":    {"*"},
	"DynamoDBFullAccess":     {"dynamodb:*"},
	"LambdaInvoke":           {"lambda:Invoke"},
	"ReadOnlyAccess":         {"*:Get*", "*:List*", "*:Describe*"},
	"S3FullAccess":           {"s3:*"},
	"S3ReadOnlyAccess":       {"s3:Get*", "s3:List*"},
	"SecurityAuditor":        {"iam:Get*", "iam:List*", "logs:*"},
	"ThrottledQueueConsumer": {"sqs:Receive*", "sqs:Delete*"},
}

// matchesAction reports whether a pattern covers an action. A part of the pattern may end with *.
func matchesAction(pattern, action string) bool {
	if pattern == "*" {
		return true
	}
	ps, pa, _ := strings.Cut(pattern, ":")
	s, a, _ := strings.Cut(action, ":")
	part := func(p, v string) bool {
		prefix, ends := strings.CutSuffix(p, "*")
		return p == v || ends && strings.HasPrefix(v, prefix)
	}
	return part(ps, s) && part(pa, a)
}

type userArgs struct {
	Name string `json:"user_name"`
}

type attachArgs struct {
	Name   string `json:"user_name"`
	Policy string `json:"policy"`
}

func (c *cloud) findUser(name string) (*user, error) {
	return findThing(c.users, "NoSuchEntity", "user", name)
}

// iamService has the tools for users and rights.
type iamService struct{ *cloud }

func (c iamService) listUsers(struct{}) (any, error) {
	return jsonObject{"Users": sortedKeys(c.users)}, nil
}

func (c iamService) getUser(a userArgs) (any, error) {
	return c.findUser(a.Name)
}

func (c iamService) createUser(a userArgs) (any, error) {
	u := &user{Name: a.Name, Policies: []string{}}
	return u, create(c.cloud, c.users, "EntityAlreadyExists", "user", a.Name, plainName, u)
}

func (c iamService) deleteUser(a userArgs) (any, error) {
	u, err := c.findUser(a.Name)
	if err != nil {
		return nil, err
	}
	if len(u.Policies) > 0 {
		return nil, fmt.Errorf("DeleteConflict: user %q has policies: %s", a.Name, strings.Join(u.Policies, ", "))
	}
	delete(c.users, a.Name)
	c.used--
	return jsonObject{"Deleted": a.Name}, nil
}

func (c iamService) listPolicies(struct{}) (any, error) {
	return jsonObject{"Policies": policyActions}, nil
}

func (c iamService) listAttachedUserPolicies(a userArgs) (any, error) {
	u, err := c.findUser(a.Name)
	if err != nil {
		return nil, err
	}
	return jsonObject{"AttachedPolicies": u.Policies}, nil
}

func (c iamService) attachUserPolicy(a attachArgs) (any, error) {
	u, err := c.findUser(a.Name)
	if err != nil {
		return nil, err
	}
	if _, err := findThing(policyActions, "NoSuchEntity", "policy", a.Policy); err != nil {
		return nil, err
	}
	if !slices.Contains(u.Policies, a.Policy) {
		u.Policies = append(u.Policies, a.Policy)
		slices.Sort(u.Policies)
	}
	return u, nil
}

func (c iamService) detachUserPolicy(a attachArgs) (any, error) {
	u, err := c.findUser(a.Name)
	if err != nil {
		return nil, err
	}
	i := slices.Index(u.Policies, a.Policy)
	if i < 0 {
		return nil, fmt.Errorf("NoSuchEntity: user %q does not have policy %.80q", a.Name, a.Policy)
	}
	u.Policies = slices.Delete(u.Policies, i, i+1)
	return u, nil
}

func (c iamService) simulatePrincipalPolicy(a struct {
	Name   string `json:"user_name"`
	Action string `json:"action"`
},
) (any, error) {
	u, err := c.findUser(a.Name)
	if err != nil {
		return nil, err
	}
	if service, verb, ok := strings.Cut(a.Action, ":"); !ok || service == "" || verb == "" {
		return nil, fmt.Errorf("ValidationError: action %.80q: want the form service:Action", a.Action)
	}
	for _, p := range u.Policies {
		if slices.ContainsFunc(policyActions[p], func(pattern string) bool { return matchesAction(pattern, a.Action) }) {
			return jsonObject{"EvalDecision": "allowed", "MatchedPolicy": p}, nil
		}
	}
	return jsonObject{"EvalDecision": "implicitDeny"}, nil
}
