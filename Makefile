# make, make install, make installcheck    build and test with an installed server (PG_CONFIG=…)
# make demo, make test, make bench         use throw-away servers

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

# The parts of the install script, in their order.
INSTALL_PARTS = $(sort $(wildcard install/*.sql))

# make test sets -Werror; a plain build does not, because newer compilers have other warnings.
WERROR ?=
PG_CPPFLAGS = -I$(srcdir)/src
PG_CXXFLAGS = -std=c++20 -Wall -Wextra $(WERROR) -Wno-register -fvisibility=hidden -MMD -MP $(COPT)
SHLIB_LINK = -lcurl -lrdkafka -lcrypto -lzstd -lstdc++
EXTRA_CLEAN = $(OBJS:.o=.d) build results output_iso

.PHONY: demo test model soak bench report unit format check-format matrix deb torture fuzz \
    fuzz-targets sanitize valgrind inject coverage selftest
.DEFAULT_GOAL := all

PG_CONFIG ?= pg_config
PGXS := $(shell $(PG_CONFIG) --pgxs 2>/dev/null)
ifneq ($(wildcard $(PGXS)),)
# PGXS would compile bitcode without PG_CXXFLAGS, and no function here needs inlining by LLVM.
override with_llvm := no
include $(PGXS)
# No warnings for the server's headers.
override CPPFLAGS := $(patsubst -I$(includedir_server),-isystem $(includedir_server),$(CPPFLAGS))
else
all install installcheck:
	@echo "$(PG_CONFIG) finds no PGXS: install PostgreSQL's server headers (Debian: postgresql-server-dev-15), or set PG_CONFIG" >&2; exit 1
clean:
	rm -rf $(OBJS) $(EXTRA_CLEAN) outbox.so
endif

-include $(OBJS:.o=.d)

all: outbox--$(EXTVERSION).sql

# The script is committed, because releases are used without make.
outbox--$(EXTVERSION).sql: scripts/install-script $(INSTALL_PARTS)
	scripts/install-script > $@.new
	mv $@.new $@

demo:
	@demo/run

# All tests, or those whose name matches ONLY (see test/README.md).
test:
	@ONLY='$(ONLY)' test/run

# The tests of the tests: they plant bugs, leaks and faults that the tests must find.
selftest:
	@ONLY='selftest|build/model|t/(api_generated_calls|install_update|torture)_' test/run

# The model of the cursor: every order of events. Takes minutes.
model:
	@test/model/run

# The tests on all supported server versions, or on those in SERVERS, in chroots of their Debian.
matrix:
	@SERVERS="$(SERVERS)" ONLY='$(ONLY)' test/matrix

# The tests under address and undefined behavior sanitizers, the unit tests also under the thread
# sanitizer.
sanitize:
	@ONLY='$(ONLY)' test/sanitize

# The regression tests, or those in TESTS, on a server under valgrind.
valgrind:
	@TESTS="$(TESTS)" test/valgrind

# The cursor on a server with injection points.
inject:
	@test/inject

# Coverage of src/ by the tests, or by those whose name matches ONLY.
coverage:
	@ONLY='$(ONLY)' test/coverage

# The tests with the counts that take hours.
soak:
	@OUTBOX_SOAK=1 test/run

# Kills a server repeatedly under full load, for MINUTES minutes.
torture:
	@MINUTES=$(MINUTES) test/torture

# All benchmarks, or those whose name contains ONLY.
bench:
	@bench/run $(ONLY)

# Plots of the benchmark results.
report:
	@scripts/install-dependencies python3 python3-matplotlib
	@/usr/bin/python3 bench/plot.py

# Debian packages for all server versions, or for PG_MAJOR, built and tested in chroots.
deb:
	@PG_MAJOR=$(PG_MAJOR) scripts/deb

# C++ tests without a server, plain and under sanitizers.
unit: build/unit build/unit-sanitized
	build/unit --gtest_brief=1
	build/unit-sanitized --gtest_brief=1

UNIT_SOURCES = $(wildcard test/unit/*.cpp $(foreach d,core sink,src/$d/*.cpp src/$d/*/*.cpp))
# Plain tests link the objects that the server loads.
UNIT_TESTS = $(patsubst %.cpp,build/plain/%.o,$(wildcard test/unit/*.cpp))
UNIT_OBJS = $(UNIT_TESTS) $(filter src/core/% src/sink/%,$(OBJS))
UNIT_SANITIZED_OBJS = $(UNIT_SOURCES:%.cpp=build/sanitized/%.o)
UNIT_THREADS_OBJS = $(patsubst %.cpp,build/threads/%.o,$(UNIT_SOURCES) $(wildcard test/unit/threads/*.cpp))
UNIT_LIBRARIES = -lgtest -lgtest_main -lcurl -lrdkafka -lcrypto -pthread
UNIT_FLAGS = -std=c++20 -Wall -Wextra $(WERROR) -I$(srcdir)/src -MMD -MP
# GCC 12 reports code that its sanitizers add to std::regex as uninitialized.
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

# Fuzzes all parsers of external input, or the one named ONLY, for SECONDS seconds of CPU time each.
fuzz:
	@test/fuzz/run $(or $(SECONDS),600) $(ONLY)

FUZZ_CXX = clang++
# Checks that take long to compile are left to the sanitized unit tests.
FUZZ_SANITIZERS = -fsanitize=address,undefined,float-cast-overflow -fno-sanitize-recover=all \
    -fno-sanitize=null,alignment,vptr,object-size
FUZZ_FLAGS = $(UNIT_FLAGS) -g1 -O1 -D_GLIBCXX_ASSERTIONS -fsanitize=fuzzer-no-link,address
FUZZ_TARGETS = $(patsubst test/%.cpp,build/%,$(wildcard test/fuzz/*.cpp))
FUZZ_TARGET_OBJS = $(FUZZ_TARGETS:=.o)
FUZZ_SOURCE_OBJS = $(patsubst %.cpp,build/fuzz/%.o,$(wildcard $(foreach d,core sink,src/$d/*.cpp src/$d/*/*.cpp)))

fuzz-targets: $(FUZZ_TARGETS)

# From the archive a target links only the objects it needs: less instrumented code runs faster.
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

# A library of test functions for code that SQL cannot call otherwise.
TEST_MODULE_SOURCES = $(wildcard test/module/*.cpp) src/pg/exceptions.cpp src/pg/jsonb_text.cpp
build/outbox_test.so: $(TEST_MODULE_SOURCES) src/pg/exceptions.hpp src/pg/jsonb_text.hpp src/pg/jsonb_reader.hpp
	@mkdir -p build
	$(CXX) $(CXXFLAGS) -fPIC -shared $(CPPFLAGS) -o $@ $(TEST_MODULE_SOURCES)

# The extension with injection points between its steps (src/pg/injection_point.hpp), for the tests
# of the cursor. Only the files that use them are compiled again.
PAUSING = $(patsubst %.cpp,%.o,$(shell grep -ls 'pg/injection_point.hpp' $(OBJS:.o=.cpp)))
PAUSES_OBJS = $(PAUSING:%=build/pauses/%)

build/pauses/outbox.so: $(PAUSES_OBJS) $(filter-out $(PAUSING),$(OBJS))
	$(CXX) -shared $(COPT) -o $@ $^ $(SHLIB_LINK)

$(PAUSES_OBJS): build/pauses/%.o: %.cpp
	@mkdir -p $(@D)
	$(CXX) $(CXXFLAGS) -O1 -g0 -fPIC $(CPPFLAGS) -DOUTBOX_TEST_PAUSES -c -o $@ $<

-include $(PAUSES_OBJS:.o=.d)

# The model of the cursor (test/model/README.md) links the objects that the server loads with a
# model of the server. Wrapped functions can be replaced by faulty ones.
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

# Prints the value of a variable, for scripts.
print-%:
	@echo $($*)
