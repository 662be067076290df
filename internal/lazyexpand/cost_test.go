package lazyexpand

import (
	"crypto/sha256"
	"fmt"
	"testing"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/token"
)

// The stub of many tools is small, for any number of services.
func TestAStubCostsLittle(t *testing.T) {
	c, err := token.New("o200k_base")
	if err != nil {
		t.Fatal(err)
	}
	services := []string{"s3", "ec2", "lambda", "dynamodb", "cloudwatch", "iam", "sqs", "logs", "route53", "cloudformation"}
	var many []string
	for i := range 60 {
		many = append(many, fmt.Sprintf("%s-%d", services[i%len(services)], i))
	}
	var noise []string // the most expensive ids
	for i := range 30 {
		noise = append(noise, fmt.Sprintf("%x", sha256.Sum256([]byte{byte(i)}))[:32])
	}
	for _, tt := range []struct {
		stub []byte
		most int
	}{
		{stubDefinition("aws", "aws_helper", services[:1], c.Count), 230},
		{stubDefinition("aws", "aws_helper", services, c.Count), 260},
		{stubDefinition(FoldGroup, FoldStub, many[:20], c.Count), maxStub},
		{stubDefinition(FoldGroup, FoldStub, many, c.Count), maxStub},
		{stubDefinition(FoldGroup, FoldStub, noise, c.Count), maxStub},
		{DeclareDefinition([]switchboard.Requirement{{Verb: "search", Resource: "internet", Constraints: []switchboard.Constraint{"readonly"}}}, false).Definition, 180},
	} {
		if n := c.Count(tt.stub); n > tt.most {
			t.Errorf("%d tokens, want at most %d: %s", n, tt.most, tt.stub)
		} else {
			t.Logf("%d tokens: %s", n, tt.stub)
		}
	}
}
