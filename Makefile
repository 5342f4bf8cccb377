# Everything builds its own environment under .venv; Python >= 3.11 and make are all that is needed.
PYTHON ?= python3

.PHONY: demo test quick bench lint clean

demo:            ## train the digits classifier and print what tracing took
	@$(PYTHON) tools/dev.py demo

test:            ## all tests, on each supported Python that is installed
	@$(PYTHON) tools/dev.py test

quick:           ## the tests that need no engine, on one Python
	@$(PYTHON) tools/dev.py test --quick

bench:           ## speed beside JAX in one run, as ratios
	@$(PYTHON) tools/dev.py bench

lint:
	@$(PYTHON) tools/dev.py lint

clean:
	rm -rf .venv build dist src/*.egg-info
