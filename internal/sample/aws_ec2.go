package sample

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
)

// maxRules limits the rules of one security group.
const maxRules = 60

// An instance is a machine.
type instance struct {
	ID    string            `json:"InstanceId"`
	Type  string            `json:"InstanceType"`
	State string            `json:"State"` // running, stopped or terminated
	Group string            `json:"SecurityGroup"`
	Tags  map[string]string `json:"Tags"`
	Boots int               `json:"Boots"`
}

// A securityGroup lists the addresses that may reach a machine.
type securityGroup struct {
	ID    string        `json:"GroupId"`
	Name  string        `json:"GroupName"`
	Rules []ingressRule `json:"IpPermissions"`
}

// An ingressRule opens one port to one range of addresses.
type ingressRule struct {
	Port int    `json:"Port"`
	CIDR string `json:"CidrIp"`
}

// instanceTypes are the available kinds of machine.
var instanceTypes = map[string]jsonObject{
	"c7.large": {"VCpus": 2, "MemoryMiB": 4096},
	"m7.large": {"VCpus": 2, "MemoryMiB": 8192},
	"t4.micro": {"VCpus": 2, "MemoryMiB": 1024},
	"t4.small": {"VCpus": 2, "MemoryMiB": 2048},
}

type instanceArgs struct {
	ID string `json:"instance_id"`
}

type groupArgs struct {
	ID string `json:"group_id"`
}

type ruleArgs struct {
	ID   string `json:"group_id"`
	Port int    `json:"port"`
	CIDR string `json:"cidr"`
}

func (c *cloud) findInstance(id string) (*instance, error) {
	return findThing(c.instances, "InvalidInstanceID.NotFound", "instance", id)
}

func (c *cloud) findGroup(id string) (*securityGroup, error) {
	return findThing(c.groups, "InvalidGroup.NotFound", "security group", id)
}

// changeState changes the state of a machine.
func (c *cloud) changeState(id, from, to string) (any, error) {
	i, err := c.findInstance(id)
	if err != nil {
		return nil, err
	}
	if i.State != from {
		return nil, fmt.Errorf("IncorrectInstanceState: instance %s is %s; it would have to be %s", id, i.State, from)
	}
	i.State = to
	return jsonObject{"InstanceId": id, "PreviousState": from, "CurrentState": to}, nil
}

func (a ruleArgs) parseRule() (ingressRule, error) {
	if a.Port < 1 || a.Port > 65535 {
		return ingressRule{}, fmt.Errorf("InvalidParameterValue: port is %d; want 1 to 65535", a.Port)
	}
	p, err := netip.ParsePrefix(a.CIDR)
	if err != nil {
		return ingressRule{}, fmt.Errorf("InvalidParameterValue: cidr %.40q: want a range of addresses, as 10.0.0.0/8", a.CIDR)
	}
	return ingressRule{a.Port, p.Masked().String()}, nil
}

// ec2Service has the tools for machines.
type ec2Service struct{ *cloud }

func (c ec2Service) describeInstances(a struct {
	State string   `json:"state,omitempty"`
	IDs   []string `json:"instance_ids,omitempty"`
},
) (any, error) {
	for _, id := range a.IDs {
		if _, err := c.findInstance(id); err != nil {
			return nil, err
		}
	}
	found := []*instance{}
	for _, id := range sortedKeys(c.instances) {
		i := c.instances[id]
		if (a.State == "" || i.State == a.State) && (len(a.IDs) == 0 || slices.Contains(a.IDs, id)) {
			found = append(found, i)
		}
	}
	return jsonObject{"Instances": found}, nil
}

func (c ec2Service) describeInstanceTypes(struct{}) (any, error) {
	return jsonObject{"InstanceTypes": instanceTypes}, nil
}

func (c ec2Service) describeRegions(struct{}) (any, error) {
	return jsonObject{"Regions": []string{"ap-east-1", "eu-central-1", "us-west-2"}}, nil
}

func (c ec2Service) runInstances(a struct {
	Type  string            `json:"instance_type"`
	Count int               `json:"count,omitempty"`
	Group string            `json:"group_id,omitempty"`
	Tags  map[string]string `json:"tags,omitempty"`
},
) (any, error) {
	n, err := checkLimit("count", a.Count, 1, 20)
	if err != nil {
		return nil, err
	}
	if _, err := findThing(instanceTypes, "InvalidParameterValue", "instance type", a.Type); err != nil {
		return nil, err
	}
	if a.Group == "" {
		a.Group = "sg-default"
	}
	if _, err := c.findGroup(a.Group); err != nil {
		return nil, err
	}
	if err := checkTags(a.Tags); err != nil {
		return nil, err
	}
	made := []*instance{}
	for range n {
		if err := c.reserve(); err != nil {
			return nil, err
		}
		i := &instance{ID: c.newID("i"), Type: a.Type, State: "running", Group: a.Group, Tags: nonNilMap(a.Tags), Boots: 1}
		c.instances[i.ID] = i
		made = append(made, i)
	}
	return jsonObject{"Instances": made}, nil
}

func (c ec2Service) startInstance(a instanceArgs) (any, error) {
	r, err := c.changeState(a.ID, "stopped", "running")
	if err == nil {
		c.instances[a.ID].Boots++
	}
	return r, err
}

func (c ec2Service) stopInstance(a instanceArgs) (any, error) {
	return c.changeState(a.ID, "running", "stopped")
}

func (c ec2Service) rebootInstance(a instanceArgs) (any, error) {
	r, err := c.changeState(a.ID, "running", "running")
	if err == nil {
		c.instances[a.ID].Boots++
	}
	return r, err
}

func (c ec2Service) terminateInstance(a instanceArgs) (any, error) {
	i, err := c.findInstance(a.ID)
	if err != nil {
		return nil, err
	}
	// A terminated machine leaves the account at once, to make room for another.
	delete(c.instances, a.ID)
	c.used--
	return jsonObject{"InstanceId": a.ID, "PreviousState": i.State, "CurrentState": "terminated"}, nil
}

func (c ec2Service) createTags(a struct {
	ID   string            `json:"instance_id"`
	Tags map[string]string `json:"tags"`
},
) (any, error) {
	i, err := c.findInstance(a.ID)
	if err != nil {
		return nil, err
	}
	all := maps.Clone(i.Tags)
	maps.Copy(all, a.Tags)
	if err := checkTags(all); err != nil {
		return nil, err
	}
	i.Tags = all
	return jsonObject{"Tags": all}, nil
}

func (c ec2Service) describeSecurityGroups(struct{}) (any, error) {
	found := []*securityGroup{}
	for _, id := range sortedKeys(c.groups) {
		found = append(found, c.groups[id])
	}
	return jsonObject{"SecurityGroups": found}, nil
}

func (c ec2Service) createSecurityGroup(a struct {
	Name string `json:"name"`
},
) (any, error) {
	if err := checkName("security group", a.Name, plainName); err != nil {
		return nil, err
	}
	for _, g := range c.groups {
		if strings.EqualFold(g.Name, a.Name) {
			return nil, fmt.Errorf("InvalidGroup.Duplicate: there is a security group %q already", a.Name)
		}
	}
	if err := c.reserve(); err != nil {
		return nil, err
	}
	g := &securityGroup{ID: c.newID("sg"), Name: a.Name, Rules: []ingressRule{}}
	c.groups[g.ID] = g
	return g, nil
}

func (c ec2Service) deleteSecurityGroup(a groupArgs) (any, error) {
	if _, err := c.findGroup(a.ID); err != nil {
		return nil, err
	}
	for _, i := range c.instances {
		if i.Group == a.ID {
			return nil, fmt.Errorf("DependencyViolation: instance %s uses security group %s", i.ID, a.ID)
		}
	}
	if a.ID == "sg-default" {
		return nil, fmt.Errorf("CannotDelete: %s is the account's default", a.ID)
	}
	delete(c.groups, a.ID)
	c.used--
	return jsonObject{"Deleted": a.ID}, nil
}

func (c ec2Service) authorizeIngress(a ruleArgs) (any, error) {
	g, err := c.findGroup(a.ID)
	if err != nil {
		return nil, err
	}
	r, err := a.parseRule()
	if err != nil {
		return nil, err
	}
	if slices.Contains(g.Rules, r) {
		return nil, fmt.Errorf("InvalidPermission.Duplicate: port %d is open to %s already", r.Port, r.CIDR)
	}
	if len(g.Rules) == maxRules {
		return nil, fmt.Errorf("RulesPerSecurityGroupLimitExceeded: %d rules are there already", maxRules)
	}
	g.Rules = append(g.Rules, r)
	return g, nil
}

func (c ec2Service) revokeIngress(a ruleArgs) (any, error) {
	g, err := c.findGroup(a.ID)
	if err != nil {
		return nil, err
	}
	r, err := a.parseRule()
	if err != nil {
		return nil, err
	}
	i := slices.Index(g.Rules, r)
	if i < 0 {
		return nil, fmt.Errorf("InvalidPermission.NotFound: port %d is not open to %s", r.Port, r.CIDR)
	}
	g.Rules = slices.Delete(g.Rules, i, i+1)
	return g, nil
}
