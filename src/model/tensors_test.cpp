#include "quire/model/tensors.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "quire/model/model_testing.h"

namespace quire::model {
namespace {

using ::testing::HasSubstr;
using testing::OpenedModel;
using testing::TestModel;

std::string tensor_refusal(const TestModel& model) {
  const OpenedModel opened(model);
  const auto numbers = read_hyperparameters(*opened.file);
  if (!numbers) return numbers.error().message;
  const auto checked = check_tensors(*opened.file, *numbers);
  return checked ? "" : checked.error().message;
}

TEST(Tensors, ThoseOfARightModelPass) {
  EXPECT_EQ(tensor_refusal(TestModel::attention("llama")), "");
  EXPECT_EQ(tensor_refusal(TestModel::attention("llama").with_tensors({false, false})), "");
  EXPECT_EQ(tensor_refusal(TestModel::recurrent("mamba2").with_tensors({true, true})), "");
  EXPECT_EQ(tensor_refusal(TestModel::hybrid("granitehybrid", {0, 1}).with_tensors({true, false})), "");
}

TEST(Tensors, OneThatIsMissingIsNamed) {
  TestModel model = TestModel::attention("llama").with_tensors({false, false});
  EXPECT_THAT(tensor_refusal(TestModel(model).remove_tensor("token_embd.weight")),
              HasSubstr("has no tensor 'token_embd.weight'"));
  EXPECT_THAT(tensor_refusal(TestModel(model).remove_tensor("blk.1.attn_k.weight")),
              HasSubstr("has no tensor 'blk.1.attn_k.weight'"));
  EXPECT_THAT(tensor_refusal(TestModel(model).set("block_count", 3U)), HasSubstr("has no tensor 'blk.2."));
  EXPECT_THAT(tensor_refusal(TestModel(model).set("block_count", 1U)),
              HasSubstr("has a tensor of layer 1, but 'llama.block_count' is 1"));
}

TEST(Tensors, QueriesKeysAndValuesMayBeOneTensor) {
  TestModel model = TestModel::attention("phi3", 1).with_tensors({false});
  for (const char* name : {"blk.0.attn_q.weight", "blk.0.attn_k.weight", "blk.0.attn_v.weight"}) {
    model.remove_tensor(name);
  }
  EXPECT_EQ(tensor_refusal(TestModel(model).tensor("blk.0.attn_qkv.weight", {16, 32})), "");
  EXPECT_THAT(tensor_refusal(TestModel(model).tensor("blk.0.attn_qkv.weight", {16, 33})), HasSubstr("33 rows of 16"));
}

TEST(Tensors, OneOfAnotherShapeIsNamed) {
  EXPECT_THAT(
      tensor_refusal(TestModel::attention("llama").with_tensors({false, false}).tensor("token_embd.weight", {16, 4})),
      HasSubstr("tensor 'token_embd.weight' has 4 rows of 16, but the metadata speak of 3 rows of 16"));
  EXPECT_THAT(
      tensor_refusal(TestModel::attention("llama").with_tensors({false, false}).set("attention.head_count_kv", 2U)),
      HasSubstr("tensor 'blk.0.attn_k.weight'"));
  EXPECT_THAT(tensor_refusal(TestModel::hybrid("granitehybrid", {1, 0}).with_tensors({true, false})),
              HasSubstr("has no tensor 'blk.0.attn_q.weight'"));
}

}  // namespace
}  // namespace quire::model
