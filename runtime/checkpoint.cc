// Checkpoints as safetensors files.
#include "runtime/checkpoint.h"

#include <fmt/format.h>

#include <charconv>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "reference/error.h"
#include "runtime/files.h"

namespace dyncp {
namespace {

constexpr std::string_view kFormat = "dyncp-checkpoint-1";
constexpr std::string_view kRunPrefix = "run.";

template <typename T>
constexpr const char* kDtype = sizeof(T) == 4 ? "F32" : "F64";

nlohmann::ordered_json to_json(const GptConfig& config) {
  return {{"layers", config.layers},
          {"heads", config.heads},
          {"kv_heads", config.kv_heads},
          {"head_dim", config.head_dim},
          {"hidden", config.hidden},
          {"ffn", config.ffn},
          {"vocabulary", config.vocabulary},
          {"rope_base", config.rope_base},
          {"norm_epsilon", config.norm_epsilon}};
}

const std::string& metadata(const Safetensors& file, const std::string& key) {
  const auto found = file.metadata.find(key);
  if (found == file.metadata.end()) {
    throw InvalidInput(fmt::format("checkpoint without metadata {}", quote(key)));
  }
  return found->second;
}

template <typename Integer>
Integer metadata_number(const Safetensors& file, const std::string& key) {
  const std::string& text = metadata(file, key);
  Integer value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || std::cmp_less(value, 0)) {
    throw InvalidInput(fmt::format("checkpoint metadata {} is {}, expected a number of 0 or more",
                                   quote(key), quote(text)));
  }
  return value;
}

void require_config(const Safetensors& file, const GptConfig& expected) {
  const std::string& text = metadata(file, "config");
  const auto found = nlohmann::json::parse(text, nullptr, false);
  if (!found.is_object()) {
    throw InvalidInput(
        fmt::format("checkpoint metadata 'config' is {}, expected a JSON object", quote(text)));
  }
  const auto wanted = to_json(expected);
  for (const auto& [key, value] : wanted.items()) {
    const auto field = found.find(key);
    const std::string got = field == found.end() ? "missing" : one_line(field->dump(), 40);
    if (field == found.end() || *field != nlohmann::json(value)) {
      throw InvalidInput(fmt::format("checkpoint of another model: {} is {}, expected {}", key, got,
                                     value.dump()));
    }
  }
  if (found.size() != wanted.size()) {
    throw InvalidInput(
        fmt::format("checkpoint of another model: its config has {} values, "
                    "expected {}",
                    found.size(), wanted.size()));
  }
}

template <typename T>
void put(const std::string& prefix, const GptParameters<T>& values, Safetensors& file) {
  for (const GptTensor& tensor : values.tensors()) {
    const auto span = values.tensor(tensor.name);
    file.tensors[prefix + tensor.name] = {kDtype<T>, tensor.shape, {span.begin(), span.end()}};
  }
}

template <typename T>
void take(const std::string& prefix, const Safetensors& file, GptParameters<T>& values) {
  for (const GptTensor& tensor : values.tensors()) {
    const std::string name = prefix + tensor.name;
    const auto found = file.tensors.find(name);
    if (found == file.tensors.end()) {
      throw InvalidInput(fmt::format("checkpoint without tensor {}", name));
    }
    const NamedTensor& stored = found->second;
    if (stored.dtype != kDtype<T>) {
      throw InvalidInput(fmt::format("checkpoint tensor {} has dtype {}, expected {}", name,
                                     stored.dtype, kDtype<T>));
    }
    if (stored.shape != tensor.shape) {
      throw InvalidInput(fmt::format("checkpoint tensor {} has shape [{}], expected [{}]", name,
                                     fmt::join(stored.shape, ", "), fmt::join(tensor.shape, ", ")));
    }
    const auto to = values.tensor(tensor.name);
    for (std::size_t i = 0; i < to.size(); ++i) to[i] = static_cast<T>(stored.values[i]);
  }
}

}  // namespace

template <typename T>
Safetensors checkpoint_file(const Checkpoint<T>& checkpoint) {
  if (checkpoint.moments.steps < 0 || checkpoint.data_position < 0) {
    throw InvalidInput(fmt::format("checkpoint of step {} at data position {}, expected 0 or more",
                                   checkpoint.moments.steps, checkpoint.data_position));
  }
  Safetensors file;
  file.metadata = {{"format", std::string(kFormat)},
                   {"config", to_json(checkpoint.parameters.config()).dump()},
                   {"steps", std::to_string(checkpoint.moments.steps)},
                   {"seed", std::to_string(checkpoint.seed)},
                   {"data_position", std::to_string(checkpoint.data_position)}};
  for (const auto& [key, value] : checkpoint.run) {
    file.metadata[std::string(kRunPrefix) + key] = value;
  }
  put("model.", checkpoint.parameters, file);
  put("first_moment.", checkpoint.moments.first, file);
  put("second_moment.", checkpoint.moments.second, file);
  return file;
}

template <typename T>
Checkpoint<T> parse_checkpoint(const Safetensors& file, const GptConfig& expected) {
  const auto format = file.metadata.find("format");
  if (format == file.metadata.end() || format->second != kFormat) {
    throw InvalidInput(
        fmt::format("no checkpoint: metadata 'format' is {}, expected {}",
                    format == file.metadata.end() ? "missing" : quote(format->second), kFormat));
  }
  require_config(file, expected);
  Checkpoint<T> checkpoint(expected);
  checkpoint.moments.steps = metadata_number<std::int64_t>(file, "steps");
  checkpoint.seed = metadata_number<std::uint64_t>(file, "seed");
  checkpoint.data_position = metadata_number<std::int64_t>(file, "data_position");
  for (const auto& [key, value] : file.metadata) {
    if (key.starts_with(kRunPrefix)) checkpoint.run[key.substr(kRunPrefix.size())] = value;
  }
  take("model.", file, checkpoint.parameters);
  take("first_moment.", file, checkpoint.moments.first);
  take("second_moment.", file, checkpoint.moments.second);
  const std::size_t known = 3 * checkpoint.parameters.tensors().size();
  if (file.tensors.size() != known) {
    throw InvalidInput(
        fmt::format("checkpoint with {} tensors, expected {}", file.tensors.size(), known));
  }
  return checkpoint;
}

template <typename T>
void write_checkpoint(const std::string& path, const Checkpoint<T>& checkpoint) {
  write_safetensors(path, checkpoint_file(checkpoint));
}

template <typename T>
Checkpoint<T> read_checkpoint(const std::string& path, const GptConfig& expected) {
  const Safetensors file = read_safetensors(path);
  try {
    return parse_checkpoint<T>(file, expected);
  } catch (const InvalidInput& error) {
    throw InvalidInput(fmt::format("{}: {}", one_line(path), error.what()));
  }
}

template Safetensors checkpoint_file(const Checkpoint<float>&);
template Safetensors checkpoint_file(const Checkpoint<double>&);
template Checkpoint<float> parse_checkpoint(const Safetensors&, const GptConfig&);
template Checkpoint<double> parse_checkpoint(const Safetensors&, const GptConfig&);
template void write_checkpoint(const std::string&, const Checkpoint<float>&);
template void write_checkpoint(const std::string&, const Checkpoint<double>&);
template Checkpoint<float> read_checkpoint(const std::string&, const GptConfig&);
template Checkpoint<double> read_checkpoint(const std::string&, const GptConfig&);

}  // namespace dyncp
