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
	ID string `json:"instance_id" jsonschema:"id of the machine, as i-…"`
}

type groupArgs struct {
	ID string `json:"group_id" jsonschema:"id of the security group, as sg-…"`
}

type ruleArgs struct {
	ID   string `json:"group_id" jsonschema:"id of the security group, as sg-…"`
	Port int    `json:"port" jsonschema:"port, 1 to 65535"`
	CIDR string `json:"cidr" jsonschema:"range of addresses, as 10.0.0.0/8"`
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

// addEC2 adds the tools for machines.
func (c *cloud) addEC2(b *sampleServer) {
	addCloudTool(c, b, cloudRead, "ec2_describe_instances", "Describe the machines of the account.", func(a struct {
		State string   `json:"state,omitempty" jsonschema:"enum=running,enum=stopped,enum=terminated" jsonschema_description:"only machines in this state"`
		IDs   []string `json:"instance_ids,omitempty" jsonschema_description:"only these machines"`
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
	})
	addCloudTool(c, b, cloudRead, "ec2_describe_instance_types", "List the kinds of machine that can be run.", func(struct{}) (any, error) {
		return jsonObject{"InstanceTypes": instanceTypes}, nil
	})
	addCloudTool(c, b, cloudRead, "ec2_describe_regions", "List the regions.", func(struct{}) (any, error) {
		return jsonObject{"Regions": []string{"ap-east-1", "eu-central-1", "us-west-2"}}, nil
	})
	addCloudTool(c, b, cloudExecute, "ec2_run_instances", "Run new machines. They cost money while they run.", func(a struct {
		Type  string            `json:"instance_type" jsonschema:"kind of machine, as t4.micro"`
		Count int               `json:"count,omitempty" jsonschema:"how many, 1 to 20; 1 if not given"`
		Group string            `json:"group_id,omitempty" jsonschema:"security group; the default one if not given"`
		Tags  map[string]string `json:"tags,omitempty" jsonschema:"tags of each machine"`
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
	})
	addCloudTool(c, b, cloudExecute, "ec2_start_instance", "Start a machine that is stopped.", func(a instanceArgs) (any, error) {
		r, err := c.changeState(a.ID, "stopped", "running")
		if err == nil {
			c.instances[a.ID].Boots++
		}
		return r, err
	})
	addCloudTool(c, b, cloudExecute, "ec2_stop_instance", "Stop a machine that is running.", func(a instanceArgs) (any, error) {
		return c.changeState(a.ID, "running", "stopped")
	})
	addCloudTool(c, b, cloudExecute, "ec2_reboot_instance", "Start a running machine anew.", func(a instanceArgs) (any, error) {
		r, err := c.changeState(a.ID, "running", "running")
		if err == nil {
			c.instances[a.ID].Boots++
		}
		return r, err
	})
	addCloudTool(c, b, cloudDestroy, "ec2_terminate_instance", "Give a machine back, with all that is on it.", func(a instanceArgs) (any, error) {
		i, err := c.findInstance(a.ID)
		if err != nil {
			return nil, err
		}
		// A terminated machine leaves the account at once, to make room for another.
		delete(c.instances, a.ID)
		c.used--
		return jsonObject{"InstanceId": a.ID, "PreviousState": i.State, "CurrentState": "terminated"}, nil
	})
	addCloudTool(c, b, cloudWrite, "ec2_create_tags", "Add tags to a machine, or change them.", func(a struct {
		ID   string            `json:"instance_id" jsonschema:"id of the machine, as i-…"`
		Tags map[string]string `json:"tags" jsonschema:"the tags to set; others stay"`
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
	})
	addCloudTool(c, b, cloudRead, "ec2_describe_security_groups", "Describe the security groups and their rules.", func(struct{}) (any, error) {
		found := []*securityGroup{}
		for _, id := range sortedKeys(c.groups) {
			found = append(found, c.groups[id])
		}
		return jsonObject{"SecurityGroups": found}, nil
	})
	addCloudTool(c, b, cloudWrite, "ec2_create_security_group", "Create a security group without rules.", func(a struct {
		Name string `json:"name" jsonschema:"name of the group"`
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
	})
	addCloudTool(c, b, cloudDestroy, "ec2_delete_security_group", "Delete a security group that no machine uses.", func(a groupArgs) (any, error) {
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
	})
	addCloudTool(c, b, cloudDestroy, "ec2_authorize_ingress", "Open a port to a range of addresses.", func(a ruleArgs) (any, error) {
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
	})
	addCloudTool(c, b, cloudWrite, "ec2_revoke_ingress", "Close a port that was opened to a range of addresses.", func(a ruleArgs) (any, error) {
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
	})
}
