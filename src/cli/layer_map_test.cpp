#include "quire/cli/layer_map.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace quire::cli {
namespace {

using model::Layer;
using ::testing::HasSubstr;

const Layer kFull = {.heads = 4, .kv_heads = 2};
const Layer kWindow = {.heads = 4, .kv_heads = 2, .window = 1024};
const Layer kRecurrent = {.recurrent = true};

TEST(LayerMap, HasACellForEachLayerAndALegend) {
  const std::vector<Layer> layers = {kRecurrent, kWindow, kFull};
  EXPECT_EQ(layer_map(layers, {}),
            "  0  o = #\n"
            "     # attention, all tokens (1)\n"
            "     = attention, a window of 1,024 tokens (1)\n"
            "     o recurrent (1)\n");
  EXPECT_EQ(layer_map(layers, {.utf8 = true}),
            "  0  ● ▒ █\n"
            "     █ attention, all tokens (1)\n"
            "     ▒ attention, a window of 1,024 tokens (1)\n"
            "     ● recurrent (1)\n");
}

TEST(LayerMap, NamesOnlyTheKindsThereAre) {
  EXPECT_EQ(layer_map(std::vector<Layer>{kFull}, {}), "  0  #\n     # attention, all tokens (1)\n");
}

TEST(LayerMap, WindowsOfSeveralLengthsAreNotGivenOne) {
  Layer other = kWindow;
  other.window = 16;
  EXPECT_THAT(layer_map(std::vector<Layer>{kWindow, other}, {}), HasSubstr("attention, a window (2)"));
}

TEST(LayerMap, LongModelsAreBrokenIntoRowsThatFit) {
  const std::vector<Layer> layers(40, kFull);
  const std::string wide = layer_map(layers, {.width = 80});
  EXPECT_THAT(wide, HasSubstr("\n  32  # # # # # # # #\n"));
  const std::string narrow = layer_map(layers, {.width = 40});
  EXPECT_THAT(narrow, HasSubstr("\n  16  # # # # # # # # # # # # # # # #\n  32  # # # # # # # #\n"));
  const std::string tiny = layer_map(layers, {.width = 1});
  EXPECT_THAT(tiny, HasSubstr("\n   8  # # # # # # # #\n  16  "));
  for (const auto& [map, width] : {std::pair(wide, 80u), std::pair(narrow, 40u)}) {
    EXPECT_LE(map.find('\n'), width);
  }
}

TEST(LayerMap, ColoursAreTakenBackAfterEveryCell) {
  EXPECT_THAT(layer_map(std::vector<Layer>{kFull, kRecurrent}, {.colour = true}),
              HasSubstr("  0  \x1b[36m#\x1b[0m \x1b[32mo\x1b[0m\n"));
}

}  // namespace
}  // namespace quire::cli
