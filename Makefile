# make, make install, make installcheck    build and test against your own server (PGXS, PG_CONFIG=…)
# make demo, make test, make bench         one command each, on throw-away servers of their own

EXTENSION = outbox
EXTVERSION = $(shell sed -n "s/^default_version = '\(.*\)'/\1/p" outbox.control)
MODULE_big = outbox
DATA = $(sort $(wildcard outbox--*.sql) outbox--$(EXTVERSION).sql)
DOCS = README.md
SCRIPTS = bin/outbox_top bin/outbox_report
PGFILEDESC = "outbox - transactional outbox"

OBJS = $(patsubst %.cpp,%.o,$(sort $(wildcard src/*.cpp src/*/*.cpp src/*/*/*.cpp)))

REGRESS = install enqueue overloads bad_input enqueue_many dedup schedule claim retries model seek fair \
    consumer_bad_input upcast idempotency audit privileges status catalog
ISOLATION = dedup first_enqueue changed_log claim fair alter cursor runs ordered snapshots prepared \
    attached_partition idempotency
ISOLATION_OPTS = --inputdir=test/isolation --load-extension=pg_partman --load-extension=outbox

# The install script is made of these parts, in their order.
INSTALL_PARTS = $(sort $(wildcard install/*.sql))

# make test has warnings as errors; whoever builds with a compiler of tomorrow need not.
WERROR ?=
PG_CPPFLAGS = -I$(srcdir)/src
PG_CXXFLAGS = -std=c++20 -Wall -Wextra $(WERROR) -Wno-register -fvisibility=hidden -MMD -MP $(COPT)
SHLIB_LINK = -lcurl -lrdkafka -lcrypto -lzstd -lstdc++
EXTRA_CLEAN = $(OBJS:.o=.d) build results output_iso

.PHONY: demo test model soak bench report unit format check-format matrix deb torture fuzz fuzz-targets sanitize valgrind inject coverage \
    selftest
.DEFAULT_GOAL := all

PG_CONFIG ?= pg_config
PGXS := $(shell $(PG_CONFIG) --pgxs 2>/dev/null)
ifneq ($(wildcard $(PGXS)),)
# The bitcode that PGXS would make ignores PG_CXXFLAGS, and nothing here wants to be inlined.
override with_llvm := no
include $(PGXS)
# The server's headers are not ours to warn about.
override CPPFLAGS := $(patsubst -I$(includedir_server),-isystem $(includedir_server),$(CPPFLAGS))
else
all install installcheck:
	@echo "$(PG_CONFIG) finds no PGXS: install PostgreSQL's server headers (Debian: postgresql-server-dev-15), or set PG_CONFIG" >&2; exit 1
clean:
	rm -rf $(OBJS) $(EXTRA_CLEAN) outbox.so
endif

-include $(OBJS:.o=.d)

all: outbox--$(EXTVERSION).sql

# Committed as well: a release is used without make.
outbox--$(EXTVERSION).sql: scripts/install-script $(INSTALL_PARTS)
	scripts/install-script > $@.new
	mv $@.new $@

demo:
	@demo/run

# All, or those whose name matches ONLY (see test/README.md).
test:
	@ONLY='$(ONLY)' test/run

# The tests of the tests: bugs, leaks and faults are planted, and the tests must find them.
selftest:
	@ONLY='selftest|build/model|t/(api_generated_calls|install_update|torture)_' test/run

# Every order of events around the cursor: minutes.
model:
	@test/model/run

# On every server that is supported, or on those that SERVERS names: in chroots of the Debians that have them.
matrix:
	@SERVERS="$(SERVERS)" ONLY='$(ONLY)' test/matrix

# Under sanitizers: the tests with those for memory and undefined behaviour, the unit tests with that for threads.
sanitize:
	@ONLY='$(ONLY)' test/sanitize

# Regression tests, or those that TESTS names, on a server under valgrind.
valgrind:
	@TESTS="$(TESTS)" test/valgrind

# The cursor on a server with injection points.
inject:
	@test/inject

# Which lines of src/ the tests run, or those whose name matches ONLY.
coverage:
	@ONLY='$(ONLY)' test/coverage

# The tests with the counts that take hours.
soak:
	@OUTBOX_SOAK=1 test/run

# The server is killed again and again under full load, for so many minutes.
torture:
	@MINUTES=$(MINUTES) test/torture

# All measures, or those whose name contains ONLY.
bench:
	@bench/run $(ONLY)

# Their results as plots.
report:
	@scripts/install-dependencies python3 python3-matplotlib
	@/usr/bin/python3 bench/plot.py

# Debian's packages for every server, or for PG_MAJOR, built and tested in chroots.
deb:
	@PG_MAJOR=$(PG_MAJOR) scripts/deb

# C++ tests that need no server, plain and under sanitizers.
unit: build/unit build/unit-sanitized
	build/unit --gtest_brief=1
	build/unit-sanitized --gtest_brief=1

UNIT_SOURCES = $(wildcard test/unit/*.cpp $(foreach d,core sink,src/$d/*.cpp src/$d/*/*.cpp))
# Plain, with the very objects that the server loads.
UNIT_TESTS = $(patsubst %.cpp,build/plain/%.o,$(wildcard test/unit/*.cpp))
UNIT_OBJS = $(UNIT_TESTS) $(filter src/core/% src/sink/%,$(OBJS))
UNIT_SANITIZED_OBJS = $(UNIT_SOURCES:%.cpp=build/sanitized/%.o)
UNIT_THREADS_OBJS = $(patsubst %.cpp,build/threads/%.o,$(UNIT_SOURCES) $(wildcard test/unit/threads/*.cpp))
UNIT_LIBRARIES = -lgtest -lgtest_main -lcurl -lrdkafka -lcrypto -pthread
UNIT_FLAGS = -std=c++20 -Wall -Wextra $(WERROR) -I$(srcdir)/src -MMD -MP
# GCC 12 takes what its sanitizers add to std::regex for uninitialized.
SANITIZERS = -fsanitize=address,undefined -fno-sanitize-recover=all -Wno-maybe-uninitialized

build/unit: $(UNIT_OBJS)
	$(CXX) $(COPT) -o $@ $^ $(UNIT_LIBRARIES)

build/unit-sanitized: $(UNIT_SANITIZED_OBJS)
	$(CXX) $(SANITIZERS) -o $@ $^ $(UNIT_LIBRARIES)

build/unit-threads: $(UNIT_THREADS_OBJS)
	$(CXX) -fsanitize=thread -o $@ $^ $(UNIT_LIBRARIES)

$(UNIT_TESTS): build/plain/%.o: %.cpp
	@mkdir -p $(@D)
	$(CXX) $(UNIT_FLAGS) $(COPT) -O0 -c -o $@ $<

$(UNIT_SANITIZED_OBJS): build/sanitized/%.o: %.cpp
	@mkdir -p $(@D)
	$(CXX) $(UNIT_FLAGS) -g1 -O1 $(SANITIZERS) -c -o $@ $<

$(UNIT_THREADS_OBJS): build/threads/%.o: %.cpp
	@mkdir -p $(@D)
	$(CXX) $(UNIT_FLAGS) -g1 -O1 -fsanitize=thread -c -o $@ $<

-include $(UNIT_TESTS:.o=.d) $(UNIT_SANITIZED_OBJS:.o=.d) $(UNIT_THREADS_OBJS:.o=.d)

# Every parser of what comes from outside, or only the one called ONLY: so many seconds each in which it had a core.
fuzz:
	@test/fuzz/run $(or $(SECONDS),600) $(ONLY)

FUZZ_CXX = clang++
# Without those that take long to compile: the sanitized unit tests have them.
FUZZ_SANITIZERS = -fsanitize=address,undefined,float-cast-overflow -fno-sanitize-recover=all \
    -fno-sanitize=null,alignment,vptr,object-size
FUZZ_FLAGS = $(UNIT_FLAGS) -g1 -O1 -D_GLIBCXX_ASSERTIONS -fsanitize=fuzzer-no-link,address
FUZZ_TARGETS = $(patsubst test/%.cpp,build/%,$(wildcard test/fuzz/*.cpp))
FUZZ_TARGET_OBJS = $(FUZZ_TARGETS:=.o)
FUZZ_SOURCE_OBJS = $(patsubst %.cpp,build/fuzz/%.o,$(wildcard $(foreach d,core sink,src/$d/*.cpp src/$d/*/*.cpp)))

fuzz-targets: $(FUZZ_TARGETS)

# A target takes only what it needs: the less there is to watch, the faster it runs.
$(FUZZ_TARGETS): %: %.o build/fuzz/sources.a
	$(FUZZ_CXX) $(FUZZ_SANITIZERS) -fsanitize=fuzzer -o $@ $^ -Wl,--as-needed -lcurl -lrdkafka -lcrypto

build/fuzz/sources.a: $(FUZZ_SOURCE_OBJS)
	rm -f $@
	ar rcs $@ $^

$(FUZZ_SOURCE_OBJS): build/fuzz/%.o: %.cpp
	@mkdir -p $(@D)
	$(FUZZ_CXX) $(FUZZ_FLAGS) $(FUZZ_SANITIZERS) -c -o $@ $<

$(FUZZ_TARGET_OBJS): build/fuzz/%.o: test/fuzz/%.cpp
	@mkdir -p $(@D)
	$(FUZZ_CXX) $(FUZZ_FLAGS) -c -o $@ $<

-include $(FUZZ_TARGET_OBJS:.o=.d) $(FUZZ_SOURCE_OBJS:.o=.d)

# Functions that drive what SQL cannot reach otherwise, in a library of their own.
TEST_MODULE_SOURCES = $(wildcard test/module/*.cpp) src/pg/exceptions.cpp src/pg/jsonb_text.cpp
build/outbox_test.so: $(TEST_MODULE_SOURCES) src/pg/exceptions.hpp src/pg/jsonb_text.hpp src/pg/jsonb_reader.hpp
	@mkdir -p build
	$(CXX) $(CXXFLAGS) -fPIC -shared $(CPPFLAGS) -o $@ $(TEST_MODULE_SOURCES)

# The extension with pauses between its steps (src/pg/injection_point.hpp), for the tests of the cursor. Only those
# who pause are compiled again.
PAUSING = $(patsubst %.cpp,%.o,$(shell grep -ls 'pg/injection_point.hpp' $(OBJS:.o=.cpp)))
PAUSES_OBJS = $(PAUSING:%=build/pauses/%)

build/pauses/outbox.so: $(PAUSES_OBJS) $(filter-out $(PAUSING),$(OBJS))
	$(CXX) -shared $(COPT) -o $@ $^ $(SHLIB_LINK)

$(PAUSES_OBJS): build/pauses/%.o: %.cpp
	@mkdir -p $(@D)
	$(CXX) $(CXXFLAGS) -O1 -g0 -fPIC $(CPPFLAGS) -DOUTBOX_TEST_PAUSES -c -o $@ $<

-include $(PAUSES_OBJS:.o=.d)

# The cursor under every order of events (test/model/README.md): the very objects that the server loads, on a
# server that is a model. What is wrapped can be exchanged for something wrong.
MODEL_PARTS = $(patsubst %,src/%.o,log/append claim/claim claim/read_new consumer/read_page log/open_partitions log/log_scan log/log_snapshot core/cursor)
MODEL_OBJS = $(patsubst %.cpp,build/%.o,$(wildcard test/model/*.cpp))
MODEL_WRAPPED = _ZN6outbox17take_log_snapshotEv _ZN6outbox11pass_targetERNS_6CursorE _ZN6outbox10TargetScan4nextEv

build/model: $(MODEL_OBJS) $(MODEL_PARTS)
	$(CXX) $(COPT) $(MODEL_WRAPPED:%=-Wl,--wrap=%) -o $@ $^

$(MODEL_OBJS): build/%.o: %.cpp
	@mkdir -p $(@D)
	$(CXX) $(CXXFLAGS) $(CPPFLAGS) -c -o $@ $<

-include $(MODEL_OBJS:.o=.d)

CXX_FILES = $(shell find src test -name '*.cpp' -o -name '*.hpp')

format:
	clang-format -i $(CXX_FILES)

check-format:
	clang-format --dry-run -Werror $(CXX_FILES)

# For scripts: the value of a variable.
print-%:
	@echo $($*)
