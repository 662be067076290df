package sample

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
)

// maxKey limits the key of an object, in bytes.
const maxKey = 1024

// A bucket holds objects by key.
type bucket struct {
	Objects map[string]*s3Object
	Tags    map[string]string
	Policy  string // JSON, or "" for none
}

// An s3Object is one object in a bucket.
type s3Object struct {
	Body string
	Type string
}

// etag identifies the object's content.
func (o *s3Object) etag() string {
	sum := sha256.Sum256([]byte(o.Body))
	return hex.EncodeToString(sum[:16])
}

// describe returns the metadata of the object.
func (o *s3Object) describe(key string) jsonObject {
	return jsonObject{"Key": key, "Size": len(o.Body), "ETag": o.etag(), "ContentType": o.Type}
}

type bucketArgs struct {
	Bucket string `json:"bucket" jsonschema:"name of the bucket"`
}

type objectArgs struct {
	Bucket string `json:"bucket" jsonschema:"name of the bucket"`
	Key    string `json:"key" jsonschema:"key of the object"`
}

func (c *cloud) findBucket(name string) (*bucket, error) {
	return findThing(c.buckets, "NoSuchBucket", "bucket", name)
}

func (c *cloud) findObject(a objectArgs) (*bucket, *s3Object, error) {
	b, err := c.findBucket(a.Bucket)
	if err != nil {
		return nil, nil, err
	}
	o, err := findThing(b.Objects, "NoSuchKey", "object", a.Key)
	return b, o, err
}

// putObject stores an object under a new or an existing key.
func (c *cloud) putObject(b *bucket, key string, o *s3Object) error {
	if err := checkText("key", key, maxKey); err != nil {
		return fmt.Errorf("ValidationError: %w", err)
	}
	if _, ok := b.Objects[key]; !ok {
		if err := c.reserve(); err != nil {
			return err
		}
	}
	b.Objects[key] = o
	return nil
}

// addS3 adds the tools for storage.
func (c *cloud) addS3(b *sampleServer) {
	addCloudTool(c, b, cloudRead, "s3_list_buckets", "List the buckets of the account.", func(struct{}) (any, error) {
		return jsonObject{"Buckets": sortedKeys(c.buckets)}, nil
	})
	addCloudTool(c, b, cloudWrite, "s3_create_bucket", "Create a bucket.", func(a bucketArgs) (any, error) {
		if err := checkName("bucket", a.Bucket, bucketName); err != nil {
			return nil, err
		}
		if err := checkFree(c.buckets, "BucketAlreadyExists", "bucket", a.Bucket); err != nil {
			return nil, err
		}
		if err := c.reserve(); err != nil {
			return nil, err
		}
		c.buckets[a.Bucket] = &bucket{Objects: map[string]*s3Object{}}
		return jsonObject{"Location": "/" + a.Bucket}, nil
	})
	addCloudTool(c, b, cloudDestroy, "s3_delete_bucket", "Delete a bucket, which must be empty.", func(a bucketArgs) (any, error) {
		k, err := c.findBucket(a.Bucket)
		if err != nil {
			return nil, err
		}
		if len(k.Objects) > 0 {
			return nil, fmt.Errorf("BucketNotEmpty: bucket %q holds %d objects; delete them first", a.Bucket, len(k.Objects))
		}
		delete(c.buckets, a.Bucket)
		c.used--
		return jsonObject{"Deleted": a.Bucket}, nil
	})
	addCloudTool(c, b, cloudRead, "s3_list_objects", "List the objects of a bucket, in the order of their keys.", func(a struct {
		Bucket  string `json:"bucket" jsonschema:"name of the bucket"`
		Prefix  string `json:"prefix,omitempty" jsonschema:"only keys that begin so"`
		After   string `json:"after,omitempty" jsonschema:"only keys that come after this one"`
		MaxKeys int    `json:"max_keys,omitempty" jsonschema:"at most so many, 1 to 1000; 100 if not given"`
	},
	) (any, error) {
		most, err := checkLimit("max_keys", a.MaxKeys, 100, 1000)
		if err != nil {
			return nil, err
		}
		k, err := c.findBucket(a.Bucket)
		if err != nil {
			return nil, err
		}
		found, more := []jsonObject{}, false
		for _, key := range sortedKeys(k.Objects) {
			if !strings.HasPrefix(key, a.Prefix) || key <= a.After {
				continue
			}
			if len(found) == most {
				more = true
				break
			}
			found = append(found, k.Objects[key].describe(key))
		}
		return jsonObject{"Contents": found, "IsTruncated": more}, nil
	})
	addCloudTool(c, b, cloudRead, "s3_get_object", "Read an object and its content.", func(a objectArgs) (any, error) {
		_, o, err := c.findObject(a)
		if err != nil {
			return nil, err
		}
		r := o.describe(a.Key)
		r["Body"] = o.Body
		return r, nil
	})
	addCloudTool(c, b, cloudRead, "s3_head_object", "Describe an object without its content.", func(a objectArgs) (any, error) {
		_, o, err := c.findObject(a)
		if err != nil {
			return nil, err
		}
		return o.describe(a.Key), nil
	})
	addCloudTool(c, b, cloudWrite, "s3_put_object", "Store an object. One of the same key is replaced.", func(a struct {
		Bucket      string `json:"bucket" jsonschema:"name of the bucket"`
		Key         string `json:"key" jsonschema:"key of the object"`
		Body        string `json:"body" jsonschema:"content, at most 64 KiB"`
		ContentType string `json:"content_type,omitempty" jsonschema:"media type; text/plain if not given"`
	},
	) (any, error) {
		k, err := c.findBucket(a.Bucket)
		if err != nil {
			return nil, err
		}
		if err := checkBody("the object", a.Body); err != nil {
			return nil, err
		}
		o := &s3Object{Body: a.Body, Type: "text/plain"}
		if a.ContentType != "" {
			if err := checkText("content_type", a.ContentType, 256); err != nil {
				return nil, err
			}
			o.Type = a.ContentType
		}
		if err := c.putObject(k, a.Key, o); err != nil {
			return nil, err
		}
		return jsonObject{"ETag": o.etag()}, nil
	})
	addCloudTool(c, b, cloudWrite, "s3_copy_object", "Copy an object to another key or bucket.", func(a struct {
		Bucket   string `json:"bucket" jsonschema:"bucket to copy from"`
		Key      string `json:"key" jsonschema:"key to copy from"`
		ToBucket string `json:"to_bucket" jsonschema:"bucket to copy to"`
		ToKey    string `json:"to_key" jsonschema:"key to copy to"`
	},
	) (any, error) {
		_, o, err := c.findObject(objectArgs{a.Bucket, a.Key})
		if err != nil {
			return nil, err
		}
		to, err := c.findBucket(a.ToBucket)
		if err != nil {
			return nil, err
		}
		dup := *o
		if err := c.putObject(to, a.ToKey, &dup); err != nil {
			return nil, err
		}
		return jsonObject{"ETag": dup.etag()}, nil
	})
	addCloudTool(c, b, cloudDestroy, "s3_delete_object", "Delete an object. It cannot be had back.", func(a objectArgs) (any, error) {
		k, _, err := c.findObject(a)
		if err != nil {
			return nil, err
		}
		delete(k.Objects, a.Key)
		c.used--
		return jsonObject{"Deleted": a.Key}, nil
	})
	addCloudTool(c, b, cloudRead, "s3_get_bucket_tagging", "Read the tags of a bucket.", func(a bucketArgs) (any, error) {
		k, err := c.findBucket(a.Bucket)
		if err != nil {
			return nil, err
		}
		return jsonObject{"Tags": nonNilMap(k.Tags)}, nil
	})
	addCloudTool(c, b, cloudWrite, "s3_put_bucket_tagging", "Set the tags of a bucket, in place of those that it has.", func(a struct {
		Bucket string            `json:"bucket" jsonschema:"name of the bucket"`
		Tags   map[string]string `json:"tags" jsonschema:"all tags"`
	},
	) (any, error) {
		k, err := c.findBucket(a.Bucket)
		if err != nil {
			return nil, err
		}
		if err := checkTags(a.Tags); err != nil {
			return nil, err
		}
		k.Tags = a.Tags
		return jsonObject{"Tags": nonNilMap(k.Tags)}, nil
	})
}

// nonNilMap returns tags, or an empty map if tags is nil, so that the result is never null.
func nonNilMap(tags map[string]string) map[string]string {
	if tags == nil {
		return map[string]string{}
	}
	return tags
}
