package lazyexpand

import (
	"testing"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/token"
)

// What stands for many tools is itself small, however many services it names.
func TestAStubCostsLittle(t *testing.T) {
	c, err := token.New("o200k_base")
	if err != nil {
		t.Fatal(err)
	}
	services := []string{"s3", "ec2", "lambda", "dynamodb", "cloudwatch", "iam", "sqs", "logs", "route53", "cloudformation"}
	for _, tt := range []struct {
		stub []byte
		most int
	}{
		{definition("aws", "aws_helper", services[:1]), 110},
		{definition("aws", "aws_helper", services), 130},
		{definition(FoldGroup, FoldStub, services), 130},
		{Declaring([]switchboard.Requirement{{Verb: "search", Resource: "internet", Constraints: []switchboard.Constraint{"readonly"}}}).Definition, 180},
	} {
		if n := c.Count(tt.stub); n > tt.most {
			t.Errorf("%d tokens, want at most %d: %s", n, tt.most, tt.stub)
		} else {
			t.Logf("%d tokens: %s", n, tt.stub)
		}
	}
}
