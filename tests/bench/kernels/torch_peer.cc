#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>

#include "absl/strings/ascii.h"
#include "kernels/base/strings.h"
#include "tests/bench/kernels/candidate.h"
#include "tests/bench/or_die.h"

namespace normd::bench {

namespace {

class Torch final : public Candidate {
 public:
  Torch(const std::string& python, const Buffers& buffers) {
    std::array<int, 2> commands = {}, answers = {};
    if (pipe(commands.data()) != 0 || pipe(answers.data()) != 0) Die("no pipe");
    child_ = fork();
    if (child_ < 0) Die("no process");
    if (child_ == 0) {
      // As normd's own memory is kept: no page is given back and faulted in again.
      setenv("MALLOC_MMAP_MAX_", "0", 1);                  // NOLINT(concurrency-mt-unsafe): no other thread
      setenv("MALLOC_TRIM_THRESHOLD_", "17179869184", 1);  // NOLINT(concurrency-mt-unsafe)
      dup2(commands[0], STDIN_FILENO);
      dup2(answers[1], STDOUT_FILENO);
      for (const int end : {commands[0], commands[1], answers[0], answers[1]}) close(end);
      const std::string script = NORMD_SOURCE_DIR "/tests/bench/kernels/torch_peer.py";
      execlp(python.c_str(), python.c_str(), script.c_str(), std::to_string(buffers.file()).c_str(), nullptr);
      _exit(127);
    }
    close(commands[0]);
    close(answers[1]);
    commands_ = fdopen(commands[1], "w");
    answers_ = fdopen(answers[0], "r");
  }
  ~Torch() override {
    std::fclose(commands_);  // at the end of its input it ends
    std::fclose(answers_);
    waitpid(child_, nullptr, 0);
  }

  std::string_view name() const override { return "PyTorch"; }
  bool Spins() const override { return true; }
  pid_t pid() const override { return child_; }
  bool WritesResult() const override { return true; }  // in Prepare, if its calls do not

  bool Prepare(const Workload& workload, const Buffers& buffers, int threads) override {
    const char* const layout = workload.IsRows() ? "rows" : workload.layout == Layout::kChannelsFirst ? "nchw" : "nhwc";
    const std::string answer =
        Ask(Concat("prepare ", OpName(workload.op), " ", Name(workload.dtype), " ", layout, " ", workload.outer, " ",
                   workload.channels, " ", workload.side, " ", workload.row, " ", threads, " ", buffers.y_offset()));
    return answer != "-";
  }

  Batch Run(int64_t calls) override {
    const std::string answer = Ask(Concat("run ", calls));
    char* end = nullptr;
    Batch batch;
    batch.seconds = std::strtod(answer.c_str(), &end);
    batch.page_faults = std::strtod(end, nullptr) / static_cast<double>(calls);
    if (!(batch.seconds > 0)) Die("torch_peer.py: " + answer);
    return batch;
  }

  std::string Ask(const std::string& command) {
    if (std::fprintf(commands_, "%s\n", command.c_str()) < 0 || std::fflush(commands_) != 0) Die("PyTorch is gone");
    std::array<char, 512> line = {};
    if (std::fgets(line.data(), line.size(), answers_) == nullptr) Die("PyTorch did not answer: " + command);
    return std::string(absl::StripAsciiWhitespace(line.data()));
  }

 private:
  pid_t child_ = -1;
  std::FILE* commands_ = nullptr;
  std::FILE* answers_ = nullptr;
};

}  // namespace

std::unique_ptr<Candidate> StartTorch(const std::string& python, const Buffers& buffers, std::string* text) {
  auto torch = std::make_unique<Torch>(python, buffers);
  *text = torch->Ask("version");
  return torch;
}

}  // namespace normd::bench
