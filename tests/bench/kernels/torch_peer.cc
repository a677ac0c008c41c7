#include "tests/bench/kernels/torch_peer.h"

#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "tests/bench/store/or_die.h"

namespace normd::bench {

namespace {

class Torch final : public Contestant {
 public:
  Torch(const std::string& python, const Buffers& buffers) {
    std::array<int, 2> commands = {}, answers = {};
    if (pipe(commands.data()) != 0 || pipe(answers.data()) != 0) Die("no pipe");
    const std::string script = NORMD_SOURCE_DIR "/tests/bench/kernels/torch_peer.py";
    const std::string file = std::to_string(buffers.file());
    // As normd's own memory is kept: no page is given back and faulted in again. Read by malloc before main runs.
    setenv("MALLOC_MMAP_MAX_", "0", 1);                  // NOLINT(concurrency-mt-unsafe): for the child
    setenv("MALLOC_TRIM_THRESHOLD_", "17179869184", 1);  // NOLINT(concurrency-mt-unsafe)
    child_ = fork();
    if (child_ < 0) Die("no process");
    if (child_ == 0) {
      dup2(commands[0], STDIN_FILENO);
      dup2(answers[1], STDOUT_FILENO);
      for (const int end : {commands[0], commands[1], answers[0], answers[1]}) close(end);
      execlp(python.c_str(), python.c_str(), script.c_str(), file.c_str(), nullptr);
      _exit(127);
    }
    unsetenv("MALLOC_MMAP_MAX_");        // NOLINT(concurrency-mt-unsafe)
    unsetenv("MALLOC_TRIM_THRESHOLD_");  // NOLINT(concurrency-mt-unsafe)
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
  bool WritesResult() const override { return true; }  // in Prepare, if its calls do not

  bool Prepare(const Workload& workload, const Buffers& buffers, int threads) override {
    const std::vector<std::string> fields = {workload.Kind().substr(0, workload.Kind().find(' ')),
                                             std::string(Name(workload.dtype)),
                                             workload.IsRows()                           ? "rows"
                                             : workload.layout == Layout::kChannelsFirst ? "nchw"
                                                                                         : "nhwc",
                                             std::to_string(workload.outer),
                                             std::to_string(workload.channels),
                                             std::to_string(workload.side),
                                             std::to_string(workload.row),
                                             std::to_string(threads),
                                             std::to_string(buffers.y_offset())};
    std::string command = "prepare";
    for (const std::string& field : fields) command += " " + field;
    return Ask(command) != "-";
  }

  Batch Run(int64_t iterations) override {
    const double waited = WaitedForCoreSeconds(child_);
    const std::string answer = Ask("run " + std::to_string(iterations));
    char* end = nullptr;
    Batch batch;
    batch.seconds = std::strtod(answer.c_str(), &end);
    batch.page_faults = std::strtod(end, nullptr);
    if (!(batch.seconds > 0)) Die("torch_peer.py: " + answer);
    batch.stolen = (WaitedForCoreSeconds(child_) - waited) / (batch.seconds * static_cast<double>(iterations));
    return batch;
  }

  std::string Ask(const std::string& command) {
    if (std::fprintf(commands_, "%s\n", command.c_str()) < 0 || std::fflush(commands_) != 0) Die("PyTorch is gone");
    char line[512];
    if (std::fgets(line, sizeof(line), answers_) == nullptr) Die("PyTorch did not answer: " + command);
    std::string text = line;
    while (!text.empty() && text.back() == '\n') text.pop_back();
    return text;
  }

 private:
  pid_t child_ = -1;
  std::FILE* commands_ = nullptr;
  std::FILE* answers_ = nullptr;
};

}  // namespace

std::unique_ptr<Contestant> StartTorch(const std::string& python, const Buffers& buffers, std::string* text) {
  auto torch = std::make_unique<Torch>(python, buffers);
  *text = torch->Ask("version");
  return torch;
}

}  // namespace normd::bench
