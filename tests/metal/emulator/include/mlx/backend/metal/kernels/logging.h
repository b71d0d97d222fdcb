// In place of MLX's header of this name: no matrix product logs.
#pragma once
