! The Jacobian of a network in Fortran: J^T u for each unit vector, from a file of mode "vjp".
program jacobian
   use, intrinsic :: iso_c_binding
   implicit none

   interface
      function model_open(path) bind(c) result(model)
         import :: c_ptr, c_char
         character(kind=c_char), intent(in) :: path(*)
         type(c_ptr) :: model
      end function
      function model_run(model, arrays) bind(c) result(right)
         import :: c_ptr, c_int
         type(c_ptr), value :: model
         type(c_ptr), intent(in) :: arrays(*)
         integer(c_int) :: right
      end function
      subroutine model_close(model) bind(c)
         import :: c_ptr
         type(c_ptr), value :: model
      end subroutine
   end interface

   integer, parameter :: inputs = 3, outputs = 2
   real(c_double), target :: x(inputs) = [0.3d0, -0.5d0, 0.7d0], u(outputs), y(outputs), row(inputs)
   character(len=1024) :: path
   type(c_ptr) :: model
   integer :: i

   call get_command_argument(1, path)
   model = model_open(trim(path) // c_null_char)
   if (.not. c_associated(model)) error stop "no model"
   do i = 1, outputs
      u = 0
      u(i) = 1
      if (model_run(model, [c_loc(x), c_loc(u), c_loc(y), c_loc(row)]) == 0) error stop "no result"
      print '(*(es24.16))', row
   end do
   call model_close(model)
end program
